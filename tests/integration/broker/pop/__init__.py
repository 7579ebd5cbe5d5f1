"""POP in a whole broker."""
