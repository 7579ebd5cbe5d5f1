"""Who may use the console: users, sessions, and the checks of every request."""
