"""Commands that find, print and send messages."""
