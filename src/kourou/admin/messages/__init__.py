"""Messages: queries, reading, sending, tracks, dead letters."""
