"""Transactions: half messages, their end, and checks of those in doubt."""
