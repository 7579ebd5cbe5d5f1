"""Idempotent producers: which sequences of which producer a queue has, derived from the log."""
