"""Clients for any RocketMQ: producers and consumers for asyncio, and the same without it."""
