"""Files and locks: every system call of the store."""
