"""The ways from the clients of a proxy to brokers: in memory to a broker of the same process, else by TCP.

broker_link.py   what services use: BrokerLink, ClientLinks, Brokers
"""
