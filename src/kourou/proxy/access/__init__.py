"""Who calls a proxy, and the rights of calls that no request to a broker stands behind.

credentials.py         what the metadata of a call say of its account
grpc_login.py          ProxyAccess: the account of a call, and what it may
followed_accounts.py   users and policies of the brokers of a cluster
"""
