"""Replay of an archive into topics."""
