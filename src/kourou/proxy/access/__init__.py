"""The accounts of calls, and the rights of those calls that no request to a broker stands behind.

credentials.py         what the metadata of a call say of its account
grpc_login.py          ProxyAccess: the account of a call, and what it may
followed_accounts.py   users and policies of the brokers of a cluster
refusal_records.py     the audit log of a proxy, and a line for the number of refusals
"""
