"""A shop: orders are placed in one program and billed in another, with RocketMQ between them.

NAMESRV_ADDR=127.0.0.1:9876 python -m orders.billing
NAMESRV_ADDR=127.0.0.1:9876 python -m orders.shop order-1 42
"""
