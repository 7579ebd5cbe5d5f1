"""Recovery: from what is on disk to a consistent store."""
