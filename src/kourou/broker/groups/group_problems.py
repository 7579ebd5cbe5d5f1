"""Members of one consumer group that do not go together: found, and put into words.

Members must subscribe alike, for the broker keeps one table for the group, and each must have a client
id of its own, for queues are shared out by id. Apache says nothing of either, and messages are missing.
Not here: what is done about it (consumers.py logs, client_manage_processor.py may refuse).
"""

from __future__ import annotations

from kourou.broker.groups.client_channel import ClientChannel
from kourou.broker.groups.consumer_group import ConsumerGroupInfo, SubscriptionKey


def find_problems(info: ConsumerGroupInfo) -> list[str]:
    """Everything that does not go together in a group, a line for each."""
    return [*_different_subscriptions(info), *_shared_ids(info)]


def subscription_conflict(
    info: ConsumerGroupInfo, channel: ClientChannel, key: SubscriptionKey
) -> str | None:
    """Why `channel` with this wish does not go with the other members, or None."""
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
        "messages that a member did not ask for are skipped for the whole group"
    )


def _shared_id(group: str, one: ClientChannel, other: ClientChannel) -> str:
    return (
        f"group {group}: two consumers have the client id {one.client_id}, at "
        f"{one.connection.remote_address} and {other.connection.remote_address}; they work on the same "
        "queues; give each an instanceName of its own"
    )


def _shown(key: SubscriptionKey, beside: SubscriptionKey) -> str:
    """What is in one wish and not in the other."""
    wanted = sorted(key.subscriptions - beside.subscriptions)
    words = [f"{topic} [{expression}]" for topic, _, expression in wanted]
    if key.message_model != beside.message_model:
        words.append(str(key.message_model))
    return ", ".join(words) or "nothing else"
