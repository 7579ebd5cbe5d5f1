"""Access to the console: users, sessions, and the checks of every request."""
