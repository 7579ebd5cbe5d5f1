"""`kourou demo`: the tour."""
