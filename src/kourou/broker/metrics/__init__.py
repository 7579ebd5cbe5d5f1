"""What a broker exposes as metrics: RocketMQ 5's names, rocketmq-exporter's, and its own."""
