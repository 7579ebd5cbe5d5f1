"""Push consumers: rebalance, pulling ahead, handlers, offsets."""
