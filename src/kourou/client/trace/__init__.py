"""Message traces: RocketMQ's own and OpenTelemetry."""
