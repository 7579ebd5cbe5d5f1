"""POP: consumers take messages for a while, and acknowledge each one."""
