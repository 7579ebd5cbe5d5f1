"""Archiving topics to a lake."""
