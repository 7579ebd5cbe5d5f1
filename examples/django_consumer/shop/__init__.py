"""A shop that bills orders that it receives as messages."""
