"""Bytes to objects and back, sans-io: no sockets, files or clocks here."""
