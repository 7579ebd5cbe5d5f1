"""ConsumerManager: members, merged subscriptions, notifications, members that do not go together."""

from __future__ import annotations

import logging

import msgspec
import pytest

from kourou.broker.groups.client_channel import CHANNEL_EXPIRED_MS, ClientChannel
from kourou.broker.groups.consumers import ConsumerManager
from kourou.protocol.bodies import ConsumerData, MessageModel, SubscriptionData
from tests.unit.broker.tables_kit import consumer, make_channel
from tests.unit.store.message_stores import Clock


class Told:
    """A manager, and whom it would have told."""

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
    told = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    assert told.consumers.register(one, consumer())
    assert told.consumers.register(other, consumer())
    assert not told.consumers.register(one, consumer())
    assert told.take() == [("CG", ["c1"]), ("CG", ["c1", "c2"])]
    info = told.consumers.get("CG")
    assert info is not None
    assert info.client_ids() == ["c1", "c2"]
    assert info.find_channel("c2") is other
    assert told.consumers.unregister("CG", one.connection)
    assert not told.consumers.unregister("CG", one.connection)
    assert told.take() == [("CG", ["c2"])]
    told.consumers.connection_closed(other.connection)
    assert told.consumers.get("CG") is None
    assert told.consumers.find_channel("CG", "c2") is None
    assert told.take() == []


async def test_a_closed_connection_leaves_all_its_groups() -> None:
    told = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    for channel in (one, other):
        told.consumers.register(channel, consumer("A"))
        told.consumers.register(channel, consumer("B"))
    told.take()
    told.consumers.connection_closed(one.connection)
    assert sorted(told.take()) == [("A", ["c2"]), ("B", ["c2"])]
    told.consumers.connection_closed(one.connection)
    assert told.take() == []


async def test_members_that_are_silent_too_long_are_taken_out() -> None:
    told = Told()
    silent, alive = make_channel("c1", 1), make_channel("c2", 2, now_ms=10)
    told.consumers.register(silent, consumer())
    told.consumers.register(alive, consumer())
    told.take()
    told.consumers.scan(CHANNEL_EXPIRED_MS)
    assert told.take() == []
    told.consumers.scan(CHANNEL_EXPIRED_MS + 1)
    assert told.take() == [("CG", ["c2"])]
    told.consumers.scan(CHANNEL_EXPIRED_MS + 11, 200_000)
    assert told.consumers.get("CG") is not None
    told.consumers.scan(CHANNEL_EXPIRED_MS + 11)
    assert told.consumers.groups == {}


async def test_broadcasting_groups_and_groups_without_the_flag_are_not_notified() -> None:
    told = Told()
    broadcast = consumer("B")
    broadcast.message_model = MessageModel.BROADCASTING
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    for channel in (one, other):
        told.consumers.register(channel, broadcast)
        told.consumers.register(channel, consumer("Q"), notifies=False)
    told.consumers.connection_closed(one.connection)
    assert told.take() == []


async def test_the_newest_subscription_wins_and_missing_topics_go() -> None:
    told = Told()
    channel = make_channel("c1", 1)
    told.consumers.register(channel, versioned(consumer(T="a", U="*"), 5))
    told.take()
    assert not told.consumers.register(channel, versioned(consumer(T="b", U="*"), 6)), "same topics"
    found = told.consumers.find_subscription("CG", "T")
    assert found is not None
    assert found.sub_string == "b"
    told.consumers.register(channel, versioned(consumer(T="old", U="*"), 4))
    assert told.consumers.find_subscription("CG", "T") is found
    assert told.take() == []
    assert told.consumers.register(channel, versioned(consumer(T="b", V="*"), 6))
    assert told.take() == [("CG", ["c1"])]
    assert told.consumers.topics_of("CG") == {"T", "V"}
    assert told.consumers.find_subscription("CG", "U") is None
    assert told.consumers.groups_of_topic("V") == {"CG"}
    assert told.consumers.groups_of_topic("U") == set()


async def test_a_heartbeat_without_subscriptions_keeps_them() -> None:
    told = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    told.consumers.register(one, consumer(T="a"))
    bare = ConsumerData(group_name="CG", message_model=MessageModel.CLUSTERING)
    assert not told.consumers.register(one, bare, with_subscriptions=False)
    assert told.consumers.register(other, bare, with_subscriptions=False), "a new member all the same"
    assert told.consumers.topics_of("CG") == {"T"}
    assert told.consumers.problems("CG") == []


async def test_another_id_on_the_same_connection_takes_the_place_of_the_first() -> None:
    told = Told()
    channel = make_channel("c1", 1)
    told.consumers.register(channel, consumer())
    renamed = make_channel("c9", 1)
    renamed.connection = channel.connection
    assert not told.consumers.register(renamed, consumer())
    info = told.consumers.get("CG")
    assert info is not None
    assert info.client_ids() == ["c9"]


async def test_different_subscriptions_are_logged_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    with caplog.at_level(logging.WARNING):
        told.consumers.register(one, consumer(T="a || b", U="*"))
        told.consumers.register(other, consumer(T="c", U="*"))
        (line,) = told.consumers.problems("CG")
        assert line == (
            "group CG: members subscribe differently, c1 at 10.0.0.9:1 to T [a || b], c2 at 10.0.0.9:2 to "
            "T [c]; messages that a member did not ask for are skipped for the whole group"
        )
        told.consumers.register(one, consumer(T="a || b", U="*"))
        told.consumers.register(other, consumer(T="c", U="*"))
        assert caplog.messages == [line]
        told.consumers.register(other, consumer(T="b||a", U="*"))
        assert told.consumers.problems("CG") == [], "the order of tags means nothing"
        told.consumers.register(other, consumer(T="a || b"))
        assert "to nothing else" in caplog.messages[1]
        told.consumers.connection_closed(one.connection)
    assert told.consumers.problems("CG") == []
    assert len(caplog.messages) == 2


async def test_different_models_and_filter_types_are_found() -> None:
    told = Told()
    one, other = make_channel("c1", 1), make_channel("c2", 2)
    sql = consumer()
    sql.subscription_data_set = [SubscriptionData(topic="T", sub_string="*", expression_type="SQL92")]
    told.consumers.register(one, consumer())
    told.consumers.register(other, sql)
    assert len(told.consumers.problems("CG")) == 1
    broadcast = consumer()
    broadcast.message_model = MessageModel.BROADCASTING
    told.consumers.register(other, broadcast)
    assert "c2 at 10.0.0.9:2 to BROADCASTING" in told.consumers.problems("CG")[0]


async def test_one_client_id_on_two_connections_is_found_and_listed_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    one, other = make_channel("DEFAULT", 1), make_channel("DEFAULT", 2)
    with caplog.at_level(logging.WARNING):
        told.consumers.register(one, consumer())
        told.consumers.register(other, consumer())
        told.consumers.register(one, consumer())
    info = told.consumers.get("CG")
    assert info is not None
    assert info.client_ids() == ["DEFAULT"]
    assert info.find_channel("DEFAULT") is other
    (line,) = told.consumers.problems("CG")
    assert line.startswith(
        "group CG: two consumers have the client id DEFAULT, at 10.0.0.9:1 and 10.0.0.9:2;"
    )
    assert caplog.messages == [line]
    told.consumers.connection_closed(one.connection)
    assert told.consumers.problems("CG") == []
