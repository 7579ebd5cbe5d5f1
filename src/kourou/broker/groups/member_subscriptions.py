"""What each member of a group subscribes to, kept with its connection.

The group as a whole has one table, that of the newest heartbeat (consumer_group.py). While a new version
of an application is rolled out, old and new members want different things: each is given what it asked
for itself. Apache gives all of them what the newest wants.
"""

from __future__ import annotations

from typing import Final

from kourou.protocol.bodies import ConsumerData, SubscriptionData
from kourou.transport.connection import Connection

_KEY: Final = "member-subscriptions"

_Groups = dict[str, dict[str, SubscriptionData]]


def remember_subscriptions(connection: Connection, data: ConsumerData) -> None:
    """Take note of what a heartbeat wants, in place of what the one before wanted."""
    groups: _Groups = connection.attributes.setdefault(_KEY, {})
    groups[data.group_name] = {each.topic: each for each in data.subscription_data_set}


def member_subscription(connection: Connection, group: str, topic: str) -> SubscriptionData | None:
    """What the client on `connection` wants of a topic as a member of a group; None if it has not said."""
    groups: _Groups | None = connection.attributes.get(_KEY)
    topics = groups.get(group) if groups is not None else None
    return topics.get(topic) if topics is not None else None
