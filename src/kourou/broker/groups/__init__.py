"""Clients of a broker: producers, consumer groups and their members, queue locks."""
