"""Access control in a broker: its part, and the admin requests of RocketMQ 4 and 5.

Not here: accounts, users and what they may do (access/).
"""
