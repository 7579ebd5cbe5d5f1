"""The gRPC service of RocketMQ 5 (`rocketmq.v2`), translated into requests of the remoting protocol.

Every decision about a request stays with the broker that gets it. Not here: what starts a proxy
(`standalone`, `embed`, `cli`).
"""
