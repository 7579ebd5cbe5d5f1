"""Blocking clients: the asyncio ones behind a portal to their event loop."""
