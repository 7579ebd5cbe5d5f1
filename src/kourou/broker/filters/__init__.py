"""Filters that the operator has installed: finding them, their processes, the fence around them."""
