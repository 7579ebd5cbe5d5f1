"""IndexFile: entries, slots, lookup by key, verification."""
