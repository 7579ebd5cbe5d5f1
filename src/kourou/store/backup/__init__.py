"""Backups: a consistent copy of a store whose broker may be running, and a store made of such a copy."""
