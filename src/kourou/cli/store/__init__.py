"""`kourou store`: look at a store at rest."""
