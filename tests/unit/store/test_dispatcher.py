"""Dispatcher: a batch in its turn, a record of the log, hooks, and records that come twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.put_batch import PutBatch
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from tests.unit.store.message_stores import BORN_HOST, NOW_MS, StoreKit, bodies, put


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


def written(store: MessageStore, *queue_ids: int) -> PutBatch:
    store.begin_cycle()
    for queue_id in queue_ids:
        store.appender.put(
            store.queue("orders", queue_id),
            b"x",
            b"",
            tags_code=0,
            keys=(f"k{queue_id}",),
            born_timestamp=NOW_MS,
            born_host=BORN_HOST,
        )
    batch = store.write_cycle()
    assert batch is not None
    return batch


def test_publish_shows_a_batch(store: MessageStore) -> None:
    batch = written(store, 0, 1, 0)
    store.publish(batch)
    assert [store.queue("orders", queue_id).max_queue_offset for queue_id in (0, 1)] == [2, 1]
    assert store.dispatcher.dispatched_phy_offset == batch.end_phy_offset == store.log.max_phy_offset
    assert store.dispatcher.dispatched_timestamp == NOW_MS


def test_hooks_are_called_for_every_batch_after_it_is_visible(store: MessageStore) -> None:
    received: list[object] = []

    def arrived(queues: Iterable[ConsumeQueue]) -> None:
        received.extend((queue.queue_id, queue.max_queue_offset) for queue in queues)

    store.dispatcher.on_publish.append(lambda grown, messages, _: received.append((len(grown), messages)))
    store.dispatcher.on_arrival.append(arrived)
    store.publish(written(store, 0, 1, 0))
    assert received == [(2, 3), (0, 2), (1, 1)]


class Waiting:
    """Requests that wait, or none."""

    def __init__(self, held_count: int) -> None:
        self.held_count = held_count
        self.received: list[list[int]] = []

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        self.received.append([queue.queue_id for queue in queues])


def test_only_what_waits_is_asked_and_hooks_for_a_topic_hear_of_its_queues(store: MessageStore) -> None:
    some, none = Waiting(1), Waiting(0)
    orders, others = Waiting(1), Waiting(1)
    store.dispatcher.polls = (none, some)
    store.dispatcher.on_arrival_in |= {"orders": orders.arrived, "others": others.arrived}
    store.publish(written(store, 0, 1, 0))
    assert (some.received, none.received) == ([[0, 1]], [])
    assert (orders.received, others.received) == ([[0], [1]], [])


def test_a_hook_that_fails_does_not_stop_the_others(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[int] = []

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    store.dispatcher.on_publish += [broken, lambda _, messages, __: received.append(messages)]
    store.dispatcher.on_arrival += [broken, lambda grown: received.append(len(list(grown)))]
    assert put(store, b"x").queue_offset == 0
    assert received == [1, 1]
    assert "a bug" in caplog.text


def test_batches_out_of_turn_are_not_put_at_a_wrong_place(store: MessageStore) -> None:
    first, second = written(store, 0), written(store, 0)
    with pytest.raises(AssertionError, match="not published in its turn"):
        store.publish(second)
    store.publish(first)
    store.publish(second)
    assert len(bodies(store)) == 2


def test_a_batch_for_a_topic_that_was_deleted_meanwhile_is_not_visible(store: MessageStore) -> None:
    put(store, b"old")
    batch = written(store, 0)
    store.queues.delete_topic("orders")
    store.publish(batch)
    assert store.queues.find("orders", 0) is None
    assert put(store, b"new").queue_offset == 0
    assert bodies(store) == [b"new"]


# -- records of the log --------------------------------------------------------------------------


def request(
    queue_offset: int, phy_offset: int, *, sys_flag: int = 0, keys: tuple[str, ...] = ("k",)
) -> DispatchRequest:
    return DispatchRequest("orders", 0, queue_offset, phy_offset, 100, 7, NOW_MS, sys_flag, keys)


def test_a_record_goes_to_its_queue_and_the_index(store: MessageStore) -> None:
    grown = store.dispatcher.dispatch(request(0, 0))
    assert isinstance(grown, ConsumeQueue)
    unit = grown.unit(0)
    assert unit is not None
    assert (unit.phy_offset, unit.size, unit.tags_code) == (0, 100, 7)
    assert store.index is not None
    assert store.index.query("orders", "k", 10, 0, NOW_MS * 2) == [0]
    assert store.dispatcher.dispatched_phy_offset == 100


def test_a_record_that_comes_again_changes_nothing(store: MessageStore) -> None:
    for number in range(3):
        store.dispatcher.dispatch(request(number, number * 100))
    for number in range(3):
        assert store.dispatcher.dispatch(request(number, number * 100)) is None
    assert store.queue("orders", 0).max_queue_offset == 3
    assert store.index is not None
    assert store.index.query("orders", "k", 10, 0, NOW_MS * 2) == [200, 100, 0]


def test_the_first_record_of_the_log_is_indexed_once(store: MessageStore) -> None:
    """Its phy_offset is 0, which is also what an empty index says of its end."""
    assert store.index is not None
    store.dispatcher.dispatch(request(0, 0))
    store.index.build()
    store.dispatcher.dispatch(request(0, 0))
    assert store.index.query("orders", "k", 10, 0, NOW_MS * 2) == [0]


@pytest.mark.parametrize(
    ("sys_flag", "in_queue", "in_index"), [(4, False, True), (8, True, True), (12, False, False)]
)
def test_transaction_records(store: MessageStore, sys_flag: int, in_queue: bool, in_index: bool) -> None:
    grown = store.dispatcher.dispatch(request(0, 0, sys_flag=sys_flag))
    assert (grown is not None) is in_queue
    assert store.index is not None
    assert (store.index.query("orders", "k", 10, 0, NOW_MS * 2) == [0]) is in_index


def test_without_an_index_only_queues_grow(kit: StoreKit) -> None:
    store = kit.open(index_enable=False)
    store.dispatcher.dispatch(request(0, 0))
    put(store, b"x", properties="KEYS\x01k\x02", queue_id=1)
    assert store.index is None
    assert store.query_message("orders", "k", 10, 0, NOW_MS * 2) == []
    assert store.queue("orders", 0).max_queue_offset == 1
