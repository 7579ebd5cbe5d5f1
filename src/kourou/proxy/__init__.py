"""The proxy: gRPC clients (rocketmq.v2) in front of brokers that speak remoting."""
