"""Pulls: what a group may read, filters, held pulls, reads from disk."""
