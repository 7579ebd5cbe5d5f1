"""The broker: what RocketMQ's clients and tools ask of it, on our store and transport."""
