"""Overflow policies: what happens when the backlog of a topic's slowest live group reaches its limit."""
