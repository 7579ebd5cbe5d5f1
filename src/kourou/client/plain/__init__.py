"""The clients for programs without asyncio: each runs its async twin on one loop in a thread of ours."""
