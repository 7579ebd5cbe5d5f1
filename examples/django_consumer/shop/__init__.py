"""A shop that bills orders it gets by messages."""
