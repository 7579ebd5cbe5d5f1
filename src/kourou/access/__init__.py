"""Access control: accounts, what they may do, and the gate that asks for every request.

    model.py         the words: resources, actions, needs, calls, and what the rules of a version decide
    signatures.py    whether a request was signed with a secret key
    requests.py      one table: request code → what a caller needs (needs.py, request_needs.py); openings.py:
                     the holes of RocketMQ that are closed in it
    plain/           the accounts of RocketMQ 4: `plain_acl.yml`, white lists, PUB and SUB
    auth/            users and policies of RocketMQ 5
    gate.py          the check of every request: rules, lock-out, quotas, audit

Used by brokers and name servers. Not here: the admin requests (broker/access/), how clients sign
(client/core/credentials.py), the kernel's way for signed sends (broker/send/).
"""
