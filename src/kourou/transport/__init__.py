"""asyncio connections around the protocol: servers, clients, TLS."""
