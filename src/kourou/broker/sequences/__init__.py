"""Idempotent producers: opening them, and storing each of their messages once."""
