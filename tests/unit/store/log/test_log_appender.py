"""LogAppender: offsets, file borders, refusals, and what a failed write leaves behind."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import DiskFullError, StoreFencedError
from kourou.protocol.codes import MessageSysFlag, ResponseCode
from kourou.protocol.layout import BLANK, BLANK_MAGIC_CODE, MAX_PROPERTIES_BYTES
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark
from kourou.store.log.put_batch import PutFailedError
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.settings import FlushDiskType
from tests.unit.store.message_stores import (
    BORN_HOST,
    LOG_FILE_BYTES,
    NOW_MS,
    StoreKit,
    bodies,
    body_for,
    entries,
    faulty,
    put,
    read_queue,
    record_bytes,
)

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


Answers = list[tuple[PutStatus, int, int]]


def put_one(
    store: MessageStore, body: bytes, topic: str = "orders", queue_id: int = 0, **rest: Any
) -> tuple[ConsumeQueue, Answers]:
    """Leave one message pending; its answers come into the list."""
    answers: Answers = []
    queue = store.queue(topic, queue_id)
    store.appender.put(
        queue,
        body,
        rest.pop("properties", b""),
        tags_code=0,
        keys=rest.pop("keys", ()),
        born_timestamp=NOW_MS,
        born_host=BORN_HOST,
        done=lambda *answer: answers.append(answer),
        **rest,
    )
    return queue, answers


def test_the_bytes_of_a_batch_are_let_go_once_they_are_written(store: MessageStore) -> None:
    store.begin_cycle()
    put_one(store, b"first")
    batch = store.write_cycle()
    assert batch is not None and (batch.parts, batch.writes) == ([], [])
    store.publish(batch)


# -- offsets -------------------------------------------------------------------------------------


def test_a_put_is_pending_until_the_pass_is_written(store: MessageStore) -> None:
    store.begin_cycle()
    queue, answers = put_one(store, b"one")
    assert store.pending_bytes == record_bytes(3)
    assert (store.log.max_phy_offset, queue.max_queue_offset, answers) == (0, 0, [])
    batch = store.write_cycle()
    assert batch is not None
    assert (store.log.max_phy_offset, queue.max_queue_offset, store.pending_bytes) == (record_bytes(3), 0, 0)
    store.publish(batch)
    assert queue.max_queue_offset == 1
    assert answers == []
    batch.answer(PutStatus.PUT_OK)
    assert answers == [(PutStatus.PUT_OK, 0, 0)]


def test_a_pass_with_nothing_in_it_writes_nothing(store: MessageStore) -> None:
    store.begin_cycle()
    assert store.write_cycle() is None
    assert store.log.log_files == []


def test_each_queue_counts_for_itself_and_the_log_for_all(store: MessageStore) -> None:
    store.begin_cycle()
    answers = [put_one(store, b"x", queue_id=queue_id)[1] for queue_id in (0, 1, 0, 0, 1)]
    store.write_and_publish()
    size = record_bytes(1)
    assert [answer[0][1:] for answer in answers] == [
        (0, 0),
        (size, 0),
        (2 * size, 1),
        (3 * size, 2),
        (4 * size, 1),
    ]


def test_a_record_has_the_offsets_and_the_time_of_its_pass(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"first")
    kit.clock.advance(ms=500)
    result = put(store, b"second", properties="TAGS\x01t\x02")
    message = store.look_message(result.phy_offset)
    assert message is not None
    assert (message.queue_offset, message.phy_offset) == (1, result.phy_offset)
    assert message.store_timestamp == NOW_MS + 500
    assert message.tags == "t"


def test_the_store_time_stands_while_a_clock_is_corrected_and_follows_one_that_is_set_back(
    kit: StoreKit, store: MessageStore
) -> None:
    put(store, b"now")
    kit.clock.advance(ms=-999)
    put(store, b"corrected")
    kit.clock.advance(ms=-1)
    put(store, b"set back")
    times = [message.store_timestamp for message in read_queue(store)]
    assert times == [NOW_MS, NOW_MS, NOW_MS - 1000]


def test_a_pass_has_one_time_however_long_it_takes(kit: StoreKit, store: MessageStore) -> None:
    store.begin_cycle()
    put_one(store, b"one")
    kit.clock.advance(ms=50)
    assert store.begin_cycle() == NOW_MS
    put_one(store, b"two")
    store.write_and_publish()
    assert {message.store_timestamp for message in read_queue(store)} == {NOW_MS}


@pytest.mark.parametrize("sys_flag", [PREPARED, ROLLBACK])
def test_prepared_and_rolled_back_records_take_no_place_in_the_queue(
    store: MessageStore, sys_flag: int
) -> None:
    put(store, b"before")
    result = put(store, b"half", sys_flag=sys_flag)
    put(store, b"after")
    assert result.queue_offset == 0
    message = store.look_message(result.phy_offset)
    assert message is not None
    assert (message.body, message.queue_offset, message.sys_flag) == (b"half", 0, sys_flag)
    assert bodies(store) == [b"before", b"after"]


def test_a_committed_record_is_in_the_queue(store: MessageStore) -> None:
    assert put(store, b"done", sys_flag=COMMIT).queue_offset == 0
    assert bodies(store) == [b"done"]


def test_keys_of_prepared_records_are_found_and_of_rolled_back_ones_not(store: MessageStore) -> None:
    for sys_flag, key in ((PREPARED, "half"), (ROLLBACK, "back"), (COMMIT, "done")):
        put(store, key.encode(), properties=f"KEYS\x01{key}\x02", sys_flag=sys_flag)
    found = [
        [message.body for message in store.query_message("orders", key, 10, 0, NOW_MS * 2)]
        for key in ("half", "back", "done")
    ]
    assert found == [[b"half"], [], [b"done"]]


# -- file borders --------------------------------------------------------------------------------

LARGEST = LOG_FILE_BYTES - BLANK.size


def test_a_record_that_leaves_just_the_blank_stays_in_the_file(store: MessageStore) -> None:
    put(store, body_for(1000))
    exact = put(store, body_for(LARGEST - 1000))
    behind = put(store, b"next")
    assert exact.phy_offset == 1000
    assert behind.phy_offset == LOG_FILE_BYTES
    assert record_mark(store.log.read(LARGEST, 8) or b"") == (BLANK.size, BLANK_MAGIC_CODE)


def test_a_record_that_is_one_byte_too_long_goes_to_the_next_file(store: MessageStore) -> None:
    put(store, body_for(1000))
    moved = put(store, body_for(LARGEST - 1000 + 1))
    assert moved.phy_offset == LOG_FILE_BYTES
    left = LOG_FILE_BYTES - 1000
    assert record_mark(store.log.read(1000, 8) or b"") == (left, BLANK_MAGIC_CODE)
    assert store.log.read(1008, left - 8) == bytes(left - 8)


def test_a_record_as_large_as_a_file_allows(store: MessageStore) -> None:
    assert put(store, body_for(LARGEST)).phy_offset == 0
    assert put(store, body_for(LARGEST)).phy_offset == LOG_FILE_BYTES
    with pytest.raises(PutRefusedError, match=f"record {LARGEST + 1} bytes, CommitLog file 4096 bytes"):
        put(store, body_for(LARGEST + 1))


def test_one_pass_may_fill_several_files(store: MessageStore) -> None:
    store.begin_cycle()
    for number in range(20):
        put_one(store, b"%02d" % number * 400)
    store.write_and_publish()
    assert len(store.log.log_files) == 5
    assert bodies(store) == [b"%02d" % number * 400 for number in range(20)]


def test_after_a_restart_a_file_ended_by_a_blank_is_not_gone_back_to(
    kit: StoreKit, store: MessageStore
) -> None:
    put(store, body_for(3000))
    store.begin_cycle()
    put_one(store, body_for(2000))
    store.appender.drop_pending()
    store = kit.reopen(store)
    assert put(store, body_for(2000)).phy_offset == LOG_FILE_BYTES
    assert [len(body) for body in bodies(kit.kill(store))] == [len(body_for(3000)), len(body_for(2000))]


# -- refusals ------------------------------------------------------------------------------------


def refused(store: MessageStore, body: bytes = b"x", **rest: Any) -> PutRefusedError:
    with pytest.raises(PutRefusedError) as caught:
        put_one(store, body, **rest)
    return caught.value


def test_a_body_over_the_limit_is_illegal(kit: StoreKit) -> None:
    store = kit.open(max_message_bytes=100)
    put(store, b"x" * 100)
    error = refused(store, b"x" * 101)
    assert error.status is PutStatus.MESSAGE_ILLEGAL
    assert error.response_code == ResponseCode.MESSAGE_ILLEGAL
    assert "the message is illegal, maybe msg body or properties length not matched" in str(error)
    assert "msg body length limit 100B" in str(error)
    assert "body 101 bytes" in str(error)


def test_the_limit_can_be_changed_while_the_store_is_open(kit: StoreKit) -> None:
    store = kit.open(max_message_bytes=100)
    store.appender.max_message_bytes = 200
    put(store, b"x" * 200)
    store.appender.max_message_bytes = 50
    refused(store, b"x" * 51)


def test_properties_over_the_limit_are_illegal(kit: StoreKit) -> None:
    store = kit.open(commit_log_file_bytes=1 << 17)
    put_one(store, b"", properties=b"p" * MAX_PROPERTIES_BYTES)
    for size in (MAX_PROPERTIES_BYTES + 1, 1 << 17):
        error = refused(store, properties=b"p" * size)
        assert error.status is PutStatus.PROPERTIES_SIZE_EXCEEDED
        assert error.response_code == ResponseCode.MESSAGE_ILLEGAL
        assert f"properties {size} bytes" in str(error)


@pytest.mark.parametrize(
    ("topic", "is_taken"),
    [
        ("t" * 127, True),
        ("t" * 128, False),
        ("%RETRY%" + "g" * 248, True),
        ("%DLQ%" + "g" * 250, True),
        ("%RETRY%" + "g" * 249, False),
        ("é" * 63, True),
        ("é" * 64, False),
    ],
)
def test_topics_have_a_limit_in_bytes(store: MessageStore, topic: str, is_taken: bool) -> None:
    if is_taken:
        put(store, b"x", topic)
        assert bodies(store, topic) == [b"x"]
    else:
        error = refused(store, topic=topic)
        assert error.status is PutStatus.MESSAGE_ILLEGAL
        assert "bytes, " in str(error)


def test_a_number_that_does_not_fit_is_illegal(store: MessageStore) -> None:
    error = refused(store, reconsume_times=1 << 40)
    assert error.status is PutStatus.MESSAGE_ILLEGAL
    assert "does not fit" in str(error)
    assert store.queue("orders", 0).next_queue_offset == 0


def test_a_store_that_was_closed_takes_nothing_and_keeps_what_it_had(
    kit: StoreKit, store: MessageStore
) -> None:
    put(store, b"kept")
    store.close()
    error = refused(store)
    assert error.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "the message store has been shut down" in str(error)
    assert bodies(kit.open()) == [b"kept"]


def test_refusals_of_several_sources_do_not_lift_each_other(store: MessageStore) -> None:
    full = DiskFullError(store.config.root, 0.93)
    store.appender.refuse("role", StoreFencedError("this broker is a slave"))
    store.appender.refuse("retention", full)
    assert "slave" in str(refused(store))
    store.appender.refuse("role", None)
    error = refused(store)
    assert error.__cause__ is full
    assert error.response_code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "93%" in str(error)
    with pytest.raises(PutRefusedError):
        store.appender.put_many(
            store.queue("orders", 0), entries(b"x"), born_timestamp=NOW_MS, born_host=BORN_HOST
        )
    store.appender.refuse("retention", None)
    put(store, b"taken again")


def test_every_put_status_has_its_response_code_and_words() -> None:
    codes = {status.name: status.response_code for status in PutStatus}
    assert codes == {
        "PUT_OK": 0,
        "FLUSH_DISK_TIMEOUT": 10,
        "SLAVE_NOT_AVAILABLE": 11,
        "FLUSH_SLAVE_TIMEOUT": 12,
        "IN_SYNC_REPLICAS_NOT_ENOUGH": 1,
        "CREATE_MAPPED_FILE_FAILED": 1,
        "MESSAGE_ILLEGAL": 13,
        "PROPERTIES_SIZE_EXCEEDED": 13,
        "WHEEL_TIMER_MSG_ILLEGAL": 13,
        "WHEEL_TIMER_FLOW_CONTROL": 1,
        "WHEEL_TIMER_NOT_ENABLE": 1,
        "SERVICE_NOT_AVAILABLE": 14,
        "OS_PAGE_CACHE_BUSY": 2,
        "LMQ_CONSUME_QUEUE_NUM_EXCEEDED": 1,
        "UNKNOWN_ERROR": 1,
    }
    for status in PutStatus:
        assert bool(status.remark) is not status.is_stored


# -- failed writes -------------------------------------------------------------------------------


def test_a_full_disk_fails_the_pass_and_the_next_one_goes_through(kit: StoreKit, store: MessageStore) -> None:
    put(store, body_for(3900))
    faulty(kit).fail("preallocate", error=errno.ENOSPC)
    store.begin_cycle()
    queue, answers = put_one(store, body_for(500))
    with pytest.raises(PutFailedError, match="No space left") as failed:
        store.write_cycle()
    failed.value.batch.answer(failed.value.status)
    assert answers[0][0] is PutStatus.SERVICE_NOT_AVAILABLE
    assert (queue.next_queue_offset, store.log.max_phy_offset) == (1, 3900)
    assert store.log.written_end(3900) == 3900
    assert not store.appender.is_fenced
    result = put(store, body_for(500))
    assert (result.status, result.phy_offset, result.queue_offset) == (PutStatus.PUT_OK, LOG_FILE_BYTES, 1)


@pytest.mark.parametrize("written", [0, 1, 100, 299])
def test_a_failed_write_puts_offsets_back_and_zeroes_what_it_left(
    kit: StoreKit, store: MessageStore, written: int
) -> None:
    put(store, body_for(500))
    faulty(kit).fail("pwrite", error=errno.ENOSPC, written_bytes=written)
    store.begin_cycle()
    for _ in range(2):
        queue, _ = put_one(store, body_for(150))
    with pytest.raises(PutFailedError):
        store.write_cycle()
    assert store.log.written_end(500) == 500
    assert (queue.next_queue_offset, queue.max_queue_offset) == (1, 1)
    store = kit.kill(store)
    assert len(bodies(store)) == 1


def test_an_io_error_fences_the_store_for_good(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"good")
    faulty(kit).fail("pwrite", error=errno.EIO, written_bytes=50)
    assert put(store, b"bad").status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.appender.is_fenced
    error = refused(store)
    assert isinstance(error.__cause__, StoreFencedError)
    assert (
        "the CommitLog cannot be written: Input/output error; check the disk, then restart the broker"
        in str(error)
    )
    assert bodies(store) == [b"good"]
    store.close()
    assert (kit.root / "abort").exists()
    store = kit.open()
    assert bodies(store) == [b"good"]
    assert put(store, b"after the restart").queue_offset == 1


def test_what_cannot_be_undone_fences_the_store(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"good")
    faulty(kit).fail("pwrite", error=errno.ENOSPC, written_bytes=50, part_of_path="commitlog")
    faulty(kit).fail("pwrite", 2, error=errno.EIO, part_of_path="commitlog")
    assert put(store, b"bad").status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "what is half written cannot be undone" in str(refused(store))


def test_what_cannot_be_undone_for_want_of_space_is_undone_before_the_next_write(
    kit: StoreKit, store: MessageStore
) -> None:
    put(store, body_for(500))
    faulty(kit).fail("pwrite", error=errno.ENOSPC, written_bytes=300, for_ever=True, part_of_path="commitlog")
    assert put(store, body_for(400)).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert not store.appender.is_undone
    faulty(kit).heal()
    assert put(store, body_for(200)).phy_offset == 500
    assert store.appender.is_undone
    assert store.log.written_end(700) == 700


def test_short_writes_are_continued(kit: StoreKit, store: MessageStore) -> None:
    faulty(kit).short_write(for_ever=True, written_bytes=7)
    assert put(store, b"in many pieces").status is PutStatus.PUT_OK
    faulty(kit).heal()
    assert bodies(store) == [b"in many pieces"]


def test_a_file_that_cannot_be_made_says_so_and_is_tried_again(kit: StoreKit, store: MessageStore) -> None:
    put(store, body_for(3900))
    faulty(kit).fail("create", error=errno.EMFILE)
    store.begin_cycle()
    _, answers = put_one(store, body_for(500))
    with pytest.raises(PutFailedError, match="create mapped file failed.*Too many open files") as failed:
        store.write_cycle()
    assert failed.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert not store.appender.is_fenced
    assert store.log.written_end(3900) == 3900
    assert put(store, body_for(500)).status is PutStatus.PUT_OK


def test_a_pass_that_is_pending_when_the_store_is_fenced_fails(store: MessageStore) -> None:
    store.begin_cycle()
    queue, answers = put_one(store, b"pending")
    store.appender.fence("the disk is gone")
    with pytest.raises(PutFailedError, match="the disk is gone"):
        store.write_cycle()
    assert (queue.next_queue_offset, store.log.max_phy_offset) == (0, 0)


def test_a_failed_sync_acknowledges_no_send_and_makes_no_message_visible(kit: StoreKit) -> None:
    store = kit.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert put(store, b"good").status is PutStatus.PUT_OK
    faulty(kit).fail("sync", part_of_path="commitlog")
    assert put(store, b"doubtful").status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.appender.is_fenced
    assert bodies(store) == [b"good"]


def test_a_sync_that_succeeds_after_one_that_failed_proves_nothing(kit: StoreKit) -> None:
    """Closing a fenced store syncs again; the durable mark must not move past the first failure."""
    store = kit.open()
    put(store, b"good")
    store.flush()
    durable = store.checkpoint.durable_phy_offset
    put(store, b"doubtful")
    faulty(kit).fail("sync", part_of_path="commitlog")
    store.flush()
    store.close()
    assert store.checkpoint.durable_phy_offset == durable
    assert (kit.root / "abort").exists()


def test_the_record_in_the_log_is_what_was_put(store: MessageStore) -> None:
    put_one(
        store,
        b"body",
        properties=b"KEYS\x01k\x02",
        sys_flag=COMMIT,
        flag=77,
        reconsume_times=3,
        prepared_phy_offset=1234,
    )
    store.write_and_publish()
    message = decode_record(store.log.read(0, store.log.max_phy_offset) or b"", verify_body_crc=True)
    assert (message.body, message.flag, message.sys_flag) == (b"body", 77, COMMIT)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (3, 1234)
    assert message.raw_born_host == BORN_HOST
