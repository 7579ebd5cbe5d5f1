"""The protobuf messages of RocketMQ 5's gRPC service: bytes and objects, no meaning."""
