"""Administration: configuration and runtime info."""
