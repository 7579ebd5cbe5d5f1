"""Idempotent handlers and where they keep what was handled."""
