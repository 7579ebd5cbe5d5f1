"""`kourou pipeline`: jobs on Spark."""
