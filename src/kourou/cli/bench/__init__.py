"""`kourou bench`: load for a cluster."""
