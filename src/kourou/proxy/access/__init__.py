"""Who calls a proxy, and the rights of calls that no request to a broker stands behind.

grpc_login.py   ProxyAccess: the account of a call, and what it may
"""
