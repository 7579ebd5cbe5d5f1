"""Consuming by POP: messages on loan from the broker, each acknowledged by itself."""
