"""The access control of RocketMQ 4 (ACL 1.0): accounts in YAML files, exempt addresses, PUB and SUB.

    addresses.py       patterns of addresses, for white lists
    permissions.py     what `PUB|SUB` and `topic=PUB` mean
    documents.py       the YAML of a file: reading it as text, writing it back
    accounts.py        an account, a file with accounts, the table of all files
    accounts_file.py   plain_acl.yml and the folder acl: found, read, checked
    rules.py           PlainRules: decisions by the table that is in force
    hash_order.py      which of several refused resources is named, as in RocketMQ
    edits.py           changes that the admin requests make

Not here: the requests themselves (broker/access/plain_processor.py).
"""
