"""The ways from the clients of a proxy to brokers: in memory to a broker of the same process, else by TCP.

broker_link.py    what services use: BrokerLink, ClientLinks, Brokers
cluster.py        Cluster: routes, masters and settings of topics and groups, by name servers and brokers
client_links.py   the links of one client
aged_cache.py     answers that are kept for some seconds
"""
