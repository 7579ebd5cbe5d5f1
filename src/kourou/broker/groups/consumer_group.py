"""ConsumerGroupInfo: one consumer group that has members now, what they subscribe to, and what is wrong with
them.

The group has one table of subscriptions, that of the heartbeat which came last: a topic's newest
`sub_version` wins, topics that are not in it are dropped. So members must subscribe alike, and each must have
a client id of its own, for queues are shared out by id. Apache reports neither mistake, and messages are
missing.
Not here: groups of a broker, and the log of their problems (consumers.py), which requests are refused for
them (client_manage_processor.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kourou.broker.groups.producers import ClientChannel
from kourou.protocol.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData
from kourou.transport.connection import Connection

_log = logging.getLogger(__name__)


class SubscriptionKey(NamedTuple):
    """A member's model, and topic, type and expression of each of its subscriptions."""

    message_model: MessageModel | None
    subscriptions: frozenset[tuple[str, str, str]]

    @classmethod
    def of(cls, data: ConsumerData) -> SubscriptionKey:
        """What a heartbeat says of one group."""
        return cls(
            data.message_model,
            frozenset(
                (each.topic, each.expression_type, _expression(each)) for each in data.subscription_data_set
            ),
        )


def _expression(subscription: SubscriptionData) -> str:
    if subscription.expression_type not in ("", "TAG"):
        return subscription.sub_string
    tags = {tag.strip() for tag in subscription.sub_string.split("||")}
    return " || ".join(sorted(tags - {""})) or "*"


@dataclass(slots=True, eq=False)
class ConsumerGroupInfo:
    """Members by connection, and what the group as a whole wants."""

    group: str
    last_update_ms: int
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    channels: dict[Connection, ClientChannel] = field(default_factory=dict)
    subscription_keys: dict[Connection, SubscriptionKey] = field(default_factory=dict)
    """What each member's last heartbeat with subscriptions said."""
    notifies: bool = True
    """The group's `notifyConsumerIdsChangedEnable`."""
    fingerprint: int | None = None
    """Of the heartbeat that came last (5.x, V2); 0 if it had none."""
    problems: tuple[str, ...] = ()
    """In which way members do not go together."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    def client_ids(self) -> list[str]:
        """The members' ids, each once, in the order in which they came.

        Apache lists an id twice when two connections use it. Clients then assign queues to
        one member too many, and some of them are not consumed.
        """
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """The member of this id; of two, the one that came last, for the other may be a lost connection."""
        found = None
        for channel in self.channels.values():
            if channel.client_id == client_id:
                found = channel
        return found

    def update_channel(self, channel: ClientChannel, data: ConsumerData) -> bool:
        """Record the sender of a heartbeat; True when its connection is new."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        self.last_update_ms = channel.last_update_ms
        known = self.channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update_ms = channel.last_update_ms
            return False
        if known is not None:
            _log.warning("group %s: %s has another id now: %s", self.group, known, channel.client_id)
        else:
            _log.info("consumer %s joins group %s", channel, self.group)
        self.channels[channel.connection] = channel
        return known is None

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Merge what a heartbeat wants; True when the group has other topics now."""
        new = {each.topic: each for each in subscriptions}
        changed = False
        for topic, subscription in new.items():
            old = self.subscriptions.get(topic)
            if old is None:
                _log.info("group %s subscribes to %s: %s", self.group, topic, subscription.sub_string)
                changed = True
            if old is None or subscription.sub_version > old.sub_version:
                self.subscriptions[topic] = subscription
        for topic in [topic for topic in self.subscriptions if topic not in new]:
            _log.info("group %s does not subscribe to %s any more", self.group, topic)
            del self.subscriptions[topic]
            changed = True
        return changed

    def remove(self, connection: Connection) -> ClientChannel | None:
        """Forget a member; None when it is none."""
        self.subscription_keys.pop(connection, None)
        return self.channels.pop(connection, None)


def find_problems(info: ConsumerGroupInfo) -> list[str]:
    """Everything that does not go together in a group, a line for each."""
    return [*_different_subscriptions(info), *_shared_ids(info)]


def subscription_conflict(
    info: ConsumerGroupInfo, channel: ClientChannel, key: SubscriptionKey
) -> str | None:
    """Why `channel` with this subscription is inconsistent with the other members, or None."""
    for connection, other_key in info.subscription_keys.items():
        if connection is not channel.connection and other_key != key:
            return _disagreement(info.group, info.channels[connection], other_key, channel, key)
    return None


def client_id_conflict(info: ConsumerGroupInfo, channel: ClientChannel) -> str | None:
    """Why `channel` may not be a member under its id, or None."""
    for connection, member in info.channels.items():
        if connection is not channel.connection and member.client_id == channel.client_id:
            return _shared_id(info.group, member, channel)
    return None


def _different_subscriptions(info: ConsumerGroupInfo) -> list[str]:
    first_with: dict[SubscriptionKey, ClientChannel] = {}
    for connection, key in info.subscription_keys.items():
        first_with.setdefault(key, info.channels[connection])
    sides = list(first_with.items())
    return [_disagreement(info.group, sides[0][1], sides[0][0], channel, key) for key, channel in sides[1:]]


def _shared_ids(info: ConsumerGroupInfo) -> list[str]:
    lines = []
    first_with: dict[str, ClientChannel] = {}
    for channel in info.channels.values():
        first = first_with.setdefault(channel.client_id, channel)
        if first is not channel:
            lines.append(_shared_id(info.group, first, channel))
    return lines


def _disagreement(
    group: str, one: ClientChannel, a: SubscriptionKey, other: ClientChannel, b: SubscriptionKey
) -> str:
    return (
        f"group {group}: members subscribe differently, {one} to {_shown(a, b)}, {other} to {_shown(b, a)}; "
        "messages that one member does not select are skipped for the whole group"
    )


def _shared_id(group: str, one: ClientChannel, other: ClientChannel) -> str:
    return (
        f"group {group}: two consumers have the client id {one.client_id}, at "
        f"{one.connection.remote_address} and {other.connection.remote_address}; they work on the same "
        "queues; give each an instanceName of its own"
    )


def _shown(key: SubscriptionKey, beside: SubscriptionKey) -> str:
    """The difference of two subscriptions."""
    wanted = sorted(key.subscriptions - beside.subscriptions)
    words = [f"{topic} [{expression}]" for topic, _, expression in wanted]
    if key.message_model != beside.message_model:
        words.append(str(key.message_model))
    return ", ".join(words) or "nothing else"
