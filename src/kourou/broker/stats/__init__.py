"""Statistics: counters, rates and what mqadmin shows of them."""
