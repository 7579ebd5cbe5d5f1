"""Allocation strategies: shares as Apache's Java clients (4.9.8 and 5.5.0 agree) computed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.core.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    machine_room,
)
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.pull_schedule import AsyncPullSchedule
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.protocol.bodies.message_queue import MessageQueue

# For each strategy, "queues consumers": for each consumer the numbers of the queues that are its share.
APACHE: dict[str, dict[str, list[list[int]]]] = json.loads(
    Path(__file__).with_name("apache_allocations.json").read_text()
)
BROKERS = ("east@broker-a", "west@broker-b", "north@broker-c", "east@broker-d")
ROOMS = ("east", "west", "south")


def queue_room(queue: MessageQueue) -> str:
    return machine_room(queue) or ""


def client_room(client_id: str) -> str:
    return client_id.partition("-")[0]


STRATEGIES: dict[str, AllocateStrategy] = {
    "AVG": AllocateAveragely(),
    "AVG_BY_CIRCLE": AllocateAveragelyByCircle(),
    "CONSISTENT_HASH": AllocateConsistentHash(),
    "CONSISTENT_HASH_3": AllocateConsistentHash(3),
    "MACHINE_ROOM": AllocateByMachineRoom({"east", "west"}),
    "NEARBY_AVG": AllocateMachineRoomNearby(AllocateAveragely(), queue_room, client_room),
    "NEARBY_CIRCLE": AllocateMachineRoomNearby(AllocateAveragelyByCircle(), queue_room, client_room),
}


def queues_of(number: int) -> list[MessageQueue]:
    return sorted(MessageQueue("Orders", BROKERS[each % 4], each // 4) for each in range(number))


def ids_of(number: int) -> list[str]:
    return sorted(f"{ROOMS[each % 3]}-10.0.0.{each}@{1000 + each}#77" for each in range(number))


@pytest.mark.parametrize("name", APACHE)
def test_shares_are_javas(name: str) -> None:
    for shape, shares in APACHE[name].items():
        queues, client_ids = queues_of(int(shape.split()[0])), ids_of(int(shape.split()[1]))
        ours = [
            [queues.index(each) for each in STRATEGIES[name].allocate("group", client_id, queues, client_ids)]
            for client_id in client_ids
        ]
        assert ours == shares, shape


def test_the_recording_covers_every_strategy() -> None:
    assert APACHE.keys() == STRATEGIES.keys()
    assert all(len(shapes) == 12 for shapes in APACHE.values())


# MACHINE_ROOM leaves other rooms' queues alone, CONFIG promises nothing.
@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "MACHINE_ROOM"])
@given(number=st.integers(1, 40), consumers=st.integers(1, 20))
def test_every_queue_is_given_to_exactly_one_member(name: str, number: int, consumers: int) -> None:
    queues, client_ids = queues_of(number), ids_of(consumers)
    given_out = [
        queue
        for client_id in client_ids
        for queue in STRATEGIES[name].allocate("group", client_id, queues, client_ids)
    ]
    assert sorted(given_out) == queues


@given(number=st.integers(1, 40), consumers=st.integers(1, 20))
def test_machine_room_gives_every_queue_of_its_rooms_once(number: int, consumers: int) -> None:
    queues, client_ids = queues_of(number), ids_of(consumers)
    strategy = STRATEGIES["MACHINE_ROOM"]
    given_out = [
        queue for each in client_ids for queue in strategy.allocate("group", each, queues, client_ids)
    ]
    assert sorted(given_out) == [queue for queue in queues if not queue.broker_name.startswith("north@")]


@pytest.mark.parametrize(("number", "consumers"), [(16, 7), (3, 8), (12, 4)])
def test_average_shares_differ_by_one_at_most(number: int, consumers: int) -> None:
    queues, client_ids = queues_of(number), ids_of(consumers)
    for strategy in (AllocateAveragely(), AllocateAveragelyByCircle()):
        sizes = {len(strategy.allocate("group", each, queues, client_ids)) for each in client_ids}
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_consumer_that_is_not_known_yet_gets_nothing(name: str) -> None:
    assert STRATEGIES[name].allocate("group", "east-new@1", queues_of(4), ids_of(2)) == []


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    ("client_id", "queues", "client_ids"),
    [("", queues_of(2), ids_of(2)), ("east-a", [], ["east-a"]), ("east-a", queues_of(2), [])],
)
def test_without_queues_or_consumers_nothing_is_decided(
    name: str, client_id: str, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    with pytest.raises(ValueError, match="group 'group': nothing to share out"):
        STRATEGIES[name].allocate("group", client_id, queues, client_ids)


def test_config_gives_what_was_configured_whatever_there_is() -> None:
    mine = queues_of(3)[1:]
    strategy = AllocateByConfig(mine)
    assert strategy.allocate("group", "anyone", [], []) == mine
    strategy.allocate("group", "anyone", [], []).clear()
    assert strategy.allocate("group", "anyone", [], []) == mine


def test_names_on_the_wire() -> None:
    assert [strategy.name for strategy in STRATEGIES.values()] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
        "CONSISTENT_HASH",
        "MACHINE_ROOM",
        "MACHINE_ROOM_NEARBY-AVG",
        "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE",
    ]
    assert AllocateByConfig([]).name == "CONFIG"


@pytest.mark.parametrize(
    ("broker_name", "room"),
    [("east@a", "east"), ("a", None), ("east@", None), ("east@a@b", None), ("@a", "")],
)
def test_the_room_is_in_the_brokers_name(broker_name: str, room: str | None) -> None:
    assert machine_room(MessageQueue("T", broker_name, 0)) == room


def test_an_unknown_room_is_an_error_that_says_of_what() -> None:
    strategy = AllocateMachineRoomNearby(AllocateAveragely(), lambda queue: "", client_room)
    with pytest.raises(ValueError, match="queue Orders/east@broker-a/0: no machine room is known for it"):
        strategy.allocate("group", "east-1", queues_of(1), ["east-1"])


def test_consistent_hash_needs_virtual_nodes() -> None:
    with pytest.raises(ValueError, match="virtual_nodes is 0; each consumer needs at least one"):
        AllocateConsistentHash(0)


@pytest.mark.parametrize("strategy", ["circle", lambda *_: [], None, AllocateAveragely, object()])
def test_what_is_no_strategy_is_refused_with_those_that_there_are(strategy: Any) -> None:
    for make in (AsyncPushConsumer, AsyncLitePullConsumer, AsyncPullSchedule):
        with pytest.raises(TypeError, match="AllocateAveragely, AllocateAveragelyByCircle, .*ConsistentHash"):
            make("billing", strategy=strategy)
