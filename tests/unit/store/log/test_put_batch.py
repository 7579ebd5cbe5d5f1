"""PutBatch by way of LogAppender: client batches, refused or not, and a pass of many against many of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.codes import MessageSysFlag, ResponseCode
from kourou.protocol.layout import BLANK, MAX_PROPERTIES_BYTES
from kourou.protocol.tags import tags_code
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.message_store import MessageStore
from tests.unit.store.message_stores import (
    BORN_HOST,
    LOG_FILE_BYTES,
    NOW_MS,
    StoreKit,
    bodies,
    body_for,
    entries,
    put,
    read_queue,
    record_bytes,
)

LARGEST = LOG_FILE_BYTES - BLANK.size
PREPARED = MessageSysFlag.TRANSACTION_PREPARED_TYPE.value
COMMIT = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value
ROLLBACK = MessageSysFlag.TRANSACTION_ROLLBACK_TYPE.value


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


def put_batch(store: MessageStore, batch: list[Any], **rest: Any) -> list[tuple[Any, ...]]:
    answers: list[tuple[Any, ...]] = []
    store.begin_cycle()
    store.appender.put_many(
        store.queue("orders", 0),
        batch,
        born_timestamp=NOW_MS,
        born_host=BORN_HOST,
        done=lambda *answer: answers.append(answer),
        **rest,
    )
    return answers


def test_a_batch_gets_consecutive_offsets_and_one_answer(store: MessageStore) -> None:
    put(store, b"before")
    answers = put_batch(store, entries(b"a", b"bb", b"ccc", properties=b"KEYS\x01k\x02TAGS\x01t\x02"))
    store.write_and_publish()
    sizes = [record_bytes(n, properties=b"KEYS\x01k\x02TAGS\x01t\x02") for n in (1, 2, 3)]
    first = record_bytes(6)
    assert answers == [(PutStatus.PUT_OK, [first, first + sizes[0], first + sizes[0] + sizes[1]], 1)]
    assert bodies(store) == [b"before", b"a", b"bb", b"ccc"]
    assert [m.body for m in store.query_message("orders", "k", 9, 0, NOW_MS * 2)] == [b"a", b"bb", b"ccc"]


def test_a_batch_that_does_not_fit_moves_to_the_next_file_as_a_whole(store: MessageStore) -> None:
    put(store, body_for(3500))
    answers = put_batch(store, entries(*[body_for(200)] * 3))
    store.write_and_publish()
    assert answers[0][1] == [LOG_FILE_BYTES, LOG_FILE_BYTES + 200, LOG_FILE_BYTES + 400]


def test_a_batch_that_fits_exactly_stays(store: MessageStore) -> None:
    put(store, body_for(LARGEST - 600))
    answers = put_batch(store, entries(*[body_for(200)] * 3))
    store.write_and_publish()
    assert answers[0][1][-1] == LARGEST - 200


@pytest.mark.parametrize(
    ("batch", "rest", "reason"),
    [
        ([], {}, "the batch is empty"),
        (entries(b"a"), {"sys_flag": PREPARED}, "takes no transactional messages"),
        (entries(*[b"x" * 1000] * 5), {}, "a batch with records of"),
        (entries(b"a", b"b", properties=bytes(MAX_PROPERTIES_BYTES + 1)), {}, "the message is illegal"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_whole(
    store: MessageStore, batch: list[Any], rest: dict[str, int], reason: str
) -> None:
    with pytest.raises(PutRefusedError, match=reason) as caught:
        put_batch(store, batch, **rest)
    assert caught.value.response_code == ResponseCode.MESSAGE_ILLEGAL
    store.write_and_publish()
    assert (store.log.max_phy_offset, store.queue("orders", 0).next_queue_offset) == (0, 0)


def test_a_batch_whose_last_message_is_refused_leaves_nothing_pending(store: MessageStore) -> None:
    """Its first messages were once stored although the send was rejected."""
    put(store, body_for(3900))
    answers = put_batch(store, entries(b"pending"))
    bad = [*entries(b"good"), entries(b"bad")[0]._replace(flag=1 << 40)]
    with pytest.raises(PutRefusedError, match="does not fit"):
        store.appender.put_many(store.queue("orders", 0), bad, born_timestamp=NOW_MS, born_host=BORN_HOST)
    store.write_and_publish()
    assert len(answers) == 1
    assert [len(body) for body in bodies(store)] == [len(body_for(3900)), 7]
    assert put(store, b"next").queue_offset == 2


def pending(store: MessageStore) -> dict[str, Any]:
    """All that the next pass would write and publish, as values."""
    batch = store.appender._batch
    assert batch is not None
    return {
        "writes": [(start, list(parts)) for start, parts in batch.writes],
        "units": {queue: list(units) for queue, units in batch.units.items()},
        "first_offsets": dict(batch.first_offsets),
        "indexed": list(batch.indexed),
        "puts": list(batch.puts),
        "ends": (batch.end_phy_offset, batch.last_phy_offset),
        "next": [queue.next_queue_offset for queue in store.queues.items()],
    }


@pytest.mark.parametrize("first_queue_id", [0, 1], ids=["in the same queue", "in another queue"])
def test_a_batch_refused_after_a_file_was_ended_leaves_the_pass_as_it_was(
    store: MessageStore, first_queue_id: int
) -> None:
    put(store, body_for(3700))
    store.queue("orders", 0)
    store.begin_cycle()
    one = {"tags_code": 0, "born_timestamp": NOW_MS, "born_host": BORN_HOST}
    first = store.queue("orders", first_queue_id)
    store.appender.put(first, body_for(200), b"", keys=("k",), **one)
    before = pending(store)
    bad = entries(body_for(200), body_for(200), properties=b"KEYS\x01lost\x02")
    bad[1] = bad[1]._replace(flag=1 << 40)
    with pytest.raises(PutRefusedError, match="does not fit"):
        put_batch(store, bad)
    assert pending(store) == before
    # The file has room for one more: the blank that the refused batch asked for is gone as well.
    store.appender.put(first, body_for(LARGEST - 3900), b"", keys=(), **one)
    store.write_and_publish()
    assert store.log.max_phy_offset == LARGEST
    assert [len(body) for body in bodies(store, queue_id=first_queue_id)][-1] == len(body_for(LARGEST - 3900))
    assert len(store.log.log_files) == 1
    assert found(store, "lost") == []


def found(store: MessageStore, key: str) -> list[int]:
    return [message.phy_offset for message in store.query_message("orders", key, 99, 0, NOW_MS * 2)]


def test_a_pass_leaves_what_single_appends_would(tmp_path: Path) -> None:
    messages = [
        (number % 3, b"%d" % number * 40, f"KEYS\x01k{number} all\x02TAGS\x01t{number % 2}\x02", sys_flag)
        for number, sys_flag in enumerate([0, COMMIT, PREPARED, 0, ROLLBACK, 0] * 10)
    ]
    with StoreKit(tmp_path / "one") as one, StoreKit(tmp_path / "many") as many:
        singly, at_once = one.open(), many.open()
        for queue_id, body, properties, sys_flag in messages:
            put(singly, body, queue_id=queue_id, properties=properties, sys_flag=sys_flag)
        at_once.begin_cycle()
        for queue_id, body, properties, sys_flag in messages:
            tags, keys = properties[:-1].split("\x02")[1][5:], properties.split("\x02")[0][5:].split(" ")
            queue = at_once.queue("orders", queue_id)
            at_once.appender.put(
                queue,
                body,
                properties.encode(),
                tags_code(tags),
                keys,
                NOW_MS,
                b"\x7f\x00\x00\x01\x00\x00\x00\x00",
                sys_flag,
            )
        at_once.write_and_publish()
        assert at_once.log.max_phy_offset == singly.log.max_phy_offset > 2 * LOG_FILE_BYTES
        for queue_id in range(3):
            units = at_once.queue("orders", queue_id).read_units(0, 100)
            assert units == singly.queue("orders", queue_id).read_units(0, 100) != b""
        for key in ("all", *(f"k{number}" for number in range(len(messages)))):
            assert found(singly, key) == found(at_once, key)


def test_the_bodies_of_a_batch_share_the_limit_of_one_message(kit: StoreKit) -> None:
    store = kit.open(max_message_bytes=1000)
    with pytest.raises(PutRefusedError, match="a batch with bodies of 1001 bytes"):
        put_batch(store, entries(b"x" * 500, b"x" * 501))
    put_batch(store, entries(b"x" * 500, b"x" * 500))
    store.write_and_publish()
    assert len(bodies(store)) == 2


def test_messages_whose_properties_end_with_a_zero_are_not_taken_for_torn_ones(
    kit: StoreKit, store: MessageStore
) -> None:
    put(store, b"one", properties="note\x01n\0")
    put_batch(store, entries(b"two", b"three", properties=b"note\x01n\0"))
    store.write_and_publish()
    store = kit.kill(store)
    assert bodies(store) == [b"one", b"two", b"three"]
    assert [message.properties["note"] for message in read_queue(store)] == ["n\0"] * 3


def test_a_batch_that_fits_without_its_last_separators_moves_whole(store: MessageStore) -> None:
    one = record_bytes(100, properties=b"note\x01n\0\x02")
    put(store, body_for(LARGEST - 2 * one + 1))
    answers = put_batch(store, entries(bytes(100), bytes(100), properties=b"note\x01n\0"))
    store.write_and_publish()
    assert answers[0][1] == [LOG_FILE_BYTES, LOG_FILE_BYTES + one]
