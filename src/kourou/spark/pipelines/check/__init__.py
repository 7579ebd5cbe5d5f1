"""Checking a pipeline file before anything runs."""
