"""Store check: every invariant of a store at rest, and reports about it."""
