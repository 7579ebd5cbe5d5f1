"""Commands that only Kourou has."""
