"""Timer wheel and timer log of messages delayed by time."""
