"""CommitLog: files, appending, reading, columns of records."""
