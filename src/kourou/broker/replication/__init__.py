"""A second copy of the log: the master's side, the slave's side, and what senders wait for."""
