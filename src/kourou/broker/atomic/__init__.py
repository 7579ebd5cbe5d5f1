"""Atomic publishes: messages for several queues and brokers that become visible together or not at all."""
