"""ConsumerManager: members, merged subscriptions, notifications, members that do not go together."""

from __future__ import annotations

import logging

import msgspec
import pytest

from kourou.broker.groups.consumers import ConsumerManager
from kourou.broker.groups.producers import CHANNEL_EXPIRED_MS, ClientChannel
from kourou.protocol.bodies import ConsumerData, MessageModel, SubscriptionData
from tests.unit.broker.tables_kit import consumer, make_channel
from tests.unit.store.message_stores import Clock


class Told:
    """A manager, and its notifications."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, list[str]]] = []
        self.consumers = ConsumerManager(Clock(), self._changed)

    def _changed(self, group: str, channels: list[ClientChannel]) -> None:
        self.changes.append((group, [channel.client_id for channel in channels]))

    def take(self) -> list[tuple[str, list[str]]]:
        changes, self.changes = self.changes, []
        return changes


def versioned(data: ConsumerData, sub_version: int) -> ConsumerData:
    """The same subscriptions, said at another time."""
    data.subscription_data_set = [
        msgspec.structs.replace(each, sub_version=sub_version) for each in data.subscription_data_set
    ]
    return data


async def test_members_are_notified_of_changes_of_the_group() -> None:
    reported = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    assert reported.consumers.register(one, consumer())
    assert reported.consumers.register(other, consumer())
    assert not reported.consumers.register(one, consumer())
    assert reported.take() == [("CG", ["c1"]), ("CG", ["c1", "c2"])]
    info = reported.consumers.get("CG")
    assert info is not None
    assert info.client_ids() == ["c1", "c2"]
    assert info.find_channel("c2") is other
    assert reported.consumers.unregister("CG", one.connection)
    assert not reported.consumers.unregister("CG", one.connection)
    assert reported.take() == [("CG", ["c2"])]
    reported.consumers.connection_closed(other.connection)
    assert reported.consumers.get("CG") is None
    assert reported.consumers.find_channel("CG", "c2") is None
    assert reported.take() == []


async def test_a_closed_connection_leaves_all_its_groups() -> None:
    reported = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    for channel in (one, other):
        reported.consumers.register(channel, consumer("A"))
        reported.consumers.register(channel, consumer("B"))
    reported.take()
    reported.consumers.connection_closed(one.connection)
    assert sorted(reported.take()) == [("A", ["c2"]), ("B", ["c2"])]
    reported.consumers.connection_closed(one.connection)
    assert reported.take() == []


async def test_members_that_are_silent_too_long_are_taken_out() -> None:
    reported = Told()
    silent, alive = make_channel("c1", 1), make_channel("c2", 2, now_ms=10)
    reported.consumers.register(silent, consumer())
    reported.consumers.register(alive, consumer())
    reported.take()
    reported.consumers.scan(CHANNEL_EXPIRED_MS)
    assert reported.take() == []
    reported.consumers.scan(CHANNEL_EXPIRED_MS + 1)
    assert reported.take() == [("CG", ["c2"])]
    reported.consumers.scan(CHANNEL_EXPIRED_MS + 11, 200_000)
    assert reported.consumers.get("CG") is not None
    reported.consumers.scan(CHANNEL_EXPIRED_MS + 11)
    assert reported.consumers.groups == {}


async def test_broadcasting_groups_and_groups_without_the_flag_are_not_notified() -> None:
    reported = Told()
    broadcast = consumer("B")
    broadcast.message_model = MessageModel.BROADCASTING
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    for channel in (one, other):
        reported.consumers.register(channel, broadcast)
        reported.consumers.register(channel, consumer("Q"), notifies=False)
    reported.consumers.connection_closed(one.connection)
    assert reported.take() == []


async def test_the_newest_subscription_wins_and_missing_topics_go() -> None:
    reported = Told()
    channel = make_channel("c1", 1)
    reported.consumers.register(channel, versioned(consumer(T="a", U="*"), 5))
    reported.take()
    assert not reported.consumers.register(channel, versioned(consumer(T="b", U="*"), 6)), "same topics"
    found = reported.consumers.find_subscription("CG", "T")
    assert found is not None
    assert found.sub_string == "b"
    reported.consumers.register(channel, versioned(consumer(T="old", U="*"), 4))
    assert reported.consumers.find_subscription("CG", "T") is found
    assert reported.take() == []
    assert reported.consumers.register(channel, versioned(consumer(T="b", V="*"), 6))
    assert reported.take() == [("CG", ["c1"])]
    assert reported.consumers.topics_of("CG") == {"T", "V"}
    assert reported.consumers.find_subscription("CG", "U") is None
    assert reported.consumers.groups_of_topic("V") == {"CG"}
    assert reported.consumers.groups_of_topic("U") == set()


async def test_a_heartbeat_without_subscriptions_keeps_them() -> None:
    reported = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    reported.consumers.register(one, consumer(T="a"))
    bare = ConsumerData(group_name="CG", message_model=MessageModel.CLUSTERING)
    assert not reported.consumers.register(one, bare, with_subscriptions=False)
    assert reported.consumers.register(other, bare, with_subscriptions=False), "a new member all the same"
    assert reported.consumers.topics_of("CG") == {"T"}
    assert reported.consumers.problems("CG") == []


async def test_another_id_on_the_same_connection_takes_the_place_of_the_first() -> None:
    reported = Told()
    channel = make_channel("c1", 1)
    reported.consumers.register(channel, consumer())
    renamed = make_channel("c9", 1)
    renamed.connection = channel.connection
    assert not reported.consumers.register(renamed, consumer())
    info = reported.consumers.get("CG")
    assert info is not None
    assert info.client_ids() == ["c9"]


async def test_different_subscriptions_are_logged_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    reported = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    with caplog.at_level(logging.WARNING):
        reported.consumers.register(one, consumer(T="a || b", U="*"))
        reported.consumers.register(other, consumer(T="c", U="*"))
        (line,) = reported.consumers.problems("CG")
        assert line == (
            "group CG: members subscribe differently, c1 at 10.0.0.9:1 to T [a || b], c2 at 10.0.0.9:2 to "
            "T [c]; messages that one member does not select are skipped for the whole group"
        )
        reported.consumers.register(one, consumer(T="a || b", U="*"))
        reported.consumers.register(other, consumer(T="c", U="*"))
        assert caplog.messages == [line]
        reported.consumers.register(other, consumer(T="b||a", U="*"))
        assert reported.consumers.problems("CG") == [], "the order of tags means nothing"
        reported.consumers.register(other, consumer(T="a || b"))
        assert "to nothing else" in caplog.messages[1]
        reported.consumers.connection_closed(one.connection)
    assert reported.consumers.problems("CG") == []
    assert len(caplog.messages) == 2


async def test_different_models_and_filter_types_are_found() -> None:
    reported = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    sql = consumer()
    sql.subscription_data_set = [SubscriptionData(topic="T", sub_string="*", expression_type="SQL92")]
    reported.consumers.register(one, consumer())
    reported.consumers.register(other, sql)
    assert len(reported.consumers.problems("CG")) == 1
    broadcast = consumer()
    broadcast.message_model = MessageModel.BROADCASTING
    reported.consumers.register(other, broadcast)
    assert "c2 at 10.0.0.9:2 to BROADCASTING" in reported.consumers.problems("CG")[0]


async def test_one_client_id_on_two_connections_is_found_and_listed_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported = Told()
    one, other = make_channel("DEFAULT", 1), make_channel("DEFAULT", 2)
    with caplog.at_level(logging.WARNING):
        reported.consumers.register(one, consumer())
        reported.consumers.register(other, consumer())
        reported.consumers.register(one, consumer())
    info = reported.consumers.get("CG")
    assert info is not None
    assert info.client_ids() == ["DEFAULT"]
    assert info.find_channel("DEFAULT") is other
    (line,) = reported.consumers.problems("CG")
    assert line.startswith(
        "group CG: two consumers have the client id DEFAULT, at 10.0.0.9:1 and 10.0.0.9:2;"
    )
    assert caplog.messages == [line]
    reported.consumers.connection_closed(one.connection)
    assert reported.consumers.problems("CG") == []
