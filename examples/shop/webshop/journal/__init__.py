"""journal: the service `log`, which keeps every event of every order with the place of its message."""
