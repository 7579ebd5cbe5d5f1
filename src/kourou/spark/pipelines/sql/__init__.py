"""SQL and statistics over topics and archives."""
