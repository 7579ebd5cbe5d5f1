"""`kourou bench`: load generators for a cluster."""
