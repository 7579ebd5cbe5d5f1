"""Access control of RocketMQ 5: users, and policies that allow or deny what they do.

    model.py       users, policies, entries, patterns of resources
    infos.py       users and policies from RocketMQ's JSON
    sources.py     addresses that an entry is limited to
    data.py        all users and policies at one moment, and the content of their files
    changes.py     creating, changing and deleting them
    tables.py      the ones that count now, in memory and on disk
    evaluation.py  which entry decides
    rules.py       AuthRules: authentication, then authorization
    settings.py    what the configuration says
    seeding.py     the users of the configuration
    migration.py   accounts of RocketMQ 4 as users

Not here: which request needs what (access/requests.py), the admin requests (broker/access/).
"""
