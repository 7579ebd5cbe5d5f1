"""The store in a running broker: commit cycle, flush, retention, reads of records."""
