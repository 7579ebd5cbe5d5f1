"""What POP adds to RocketMQ's protocol, beside its headers: receipt handles, the offset lists of an answer,
the records that keep what is in flight, the names of retry topics.
"""
