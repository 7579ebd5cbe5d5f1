"""users: their balance, what they have spent, and the level that gives."""
