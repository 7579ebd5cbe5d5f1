"""`kourou store`: inspect a store offline."""
