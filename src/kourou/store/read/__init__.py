"""Reading stored messages: by queue and offset, by key, by id."""
