"""Looking after halves: on a disk that is full, cold or damaged, and while producers end them."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from kourou.broker.transactions.half_messages import copy_of
from kourou.broker.transactions.transaction_check import _HALVES_PER_TURN
from kourou.protocol.codes import ResponseCode
from kourou.protocol.headers.transactions import CheckTransactionStateRequestHeader
from kourou.protocol.names import CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from kourou.protocol.record import decode_record
from tests.unit.broker.half_kit import COMMIT, ROLLBACK, TIMEOUT_MS, half_broker
from tests.unit.store.message_stores import faulty, read_queue


async def test_all_that_are_due_are_asked_for_in_one_round_and_once(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        count = 2 * _HALVES_PER_TURN + 3
        for number in range(count):
            broker.put_half(b"%d" % number, f"TX{number}")
        broker.pass_ms(TIMEOUT_MS)
        young = broker.put_half(b"young", "TX")
        await broker.check()
        questions = producer.questions()
        assert [decode_record(each.body).body for each in questions] == [b"%d" % n for n in range(count)]
        asked = [each.header(CheckTransactionStateRequestHeader) for each in questions]
        copies = [half for half in broker.halves() if half.queue_offset > young.queue_offset]
        assert [each.commit_log_offset for each in asked] == [half.phy_offset for half in copies]
        assert broker.open_halves() == [young.queue_offset, *(half.queue_offset for half in copies)]
        assert broker.transactions.table.half_queue_offset == young.queue_offset
        assert not questions[0].body.count(b"__KOUROU")


async def test_no_producer_is_asked_about_what_cannot_be_stored(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        half = broker.put_half(b"half")
        broker.pass_ms(TIMEOUT_MS)
        faulty(broker.store_kit).fail("pwrite", error=errno.ENOSPC, for_ever=True)
        await broker.check()
        assert not producer.questions() and broker.open_halves() == [0]
        answer = await producer.end(half, COMMIT)
        assert answer.code != 0 and broker.open_halves() == [0]
        faulty(broker.store_kit).heal()
        await broker.check()
        assert len(producer.questions()) == 1 and broker.open_halves() == [1]
        assert (await producer.end(half, COMMIT)).code == 0
        assert broker.visible() == [b"half"]


async def test_a_store_that_takes_nothing_ends_the_round(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        broker.put_half(b"half")
        broker.pass_ms(TIMEOUT_MS)
        broker.store.appender.fence("the test says so")
        await broker.check()
        assert broker.open_halves() == [0]


async def test_what_is_not_in_memory_is_read_in_a_disk_thread(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        half, other = broker.put_half(b"one"), broker.put_half(b"two")
        broker.pass_ms(TIMEOUT_MS)
        broker.go_cold()
        assert (await producer.end(half, COMMIT)).code == 0
        jobs = broker.disk_jobs
        assert jobs > 0
        await broker.check()
        assert broker.disk_jobs > jobs
        assert [decode_record(each.body).body for each in producer.questions()] == [b"two"]
        assert (await producer.end(other, ROLLBACK)).code == 0
        assert broker.visible() == [b"one"] and not broker.open_halves()


async def test_a_half_that_ends_while_it_is_read_is_left_alone(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        half = broker.put_half(b"half")
        broker.pass_ms(TIMEOUT_MS)
        read, gate = broker.disk.run, asyncio.Event()

        async def slow(*arguments: object) -> object:
            await gate.wait()
            return await read(*arguments)  # type: ignore[arg-type]

        broker.go_cold()
        broker.disk.run = slow  # type: ignore[assignment,method-assign]
        checking = asyncio.ensure_future(broker.checks.check())
        await asyncio.sleep(0)
        broker.transactions.roll_back(half, None)
        gate.set()
        await checking
        assert not producer.questions()
        assert len(broker.halves()) == 1 and broker.op_bodies() == [b"0"]


async def test_an_end_that_meets_a_copy_being_stored_waits_and_ends_the_copy(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        half = broker.put_half(b"half")
        broker.transactions.put_again(half, is_checked=True, done=None)
        assert (await producer.end(half, COMMIT)).code == 0
        assert broker.visible() == [b"half"]
        assert (broker.op_bodies(), broker.open_halves()) == ([b"0", b"1"], [])


async def test_a_damaged_half_delays_no_other(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        broker.store_kit.is_checked = False
        producer = await broker.producer().join()
        half = broker.put_half(b"damaged half")
        broker.put_half(b"sound", "TX2")
        broker.pass_ms(TIMEOUT_MS)
        raw = bytearray(broker.store.log.read(half.phy_offset, half.store_size) or b"")
        broker.store.log.write(half.phy_offset, bytes(raw.replace(b"damaged", b"DAMAGED")))
        await broker.check()
        assert [decode_record(each.body).body for each in producer.questions()] == [b"sound"]
        assert broker.transactions.table.half_queue_offset == 2


async def test_a_copy_of_apaches_whose_half_has_ended_has_ended(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        broker.put_half(b"open", "TX1")
        first = broker.put_half(b"ended", "TX2", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x011\x02")
        copy = copy_of(first, is_checked=False)
        copy.remove_property("__KOUROU_MOVED_FROM")
        copy.set_property("TRAN_PREPARED_QUEUE_OFFSET", "1")
        broker.writer.put_now(copy, None)
        broker.transactions.roll_back(first, None)
        broker.cycles.close()
        broker.pass_ms(TIMEOUT_MS)
        await broker.check()
        assert [decode_record(each.body).body for each in producer.questions()] == [b"open"]
        assert (broker.op_bodies(), broker.open_halves()) == ([b"1", b"0", b"2"], [3])


async def test_progress_is_noted_only_when_the_log_that_it_rests_on_is_flushed(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()

        def noted() -> list[int]:
            topics = (RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC)
            return [broker.offsets.query(CID_SYS_RMQ_TRANS, topic, 0) for topic in topics]

        for number in range(3):
            half = broker.put_half(b"%d" % number)
            assert (await producer.end(half, COMMIT)).code == 0
        await broker.check()
        await broker.check()
        assert noted() == [-1, -1]
        broker.store.flush()
        await broker.check()
        assert noted() == [3, 3]


async def test_a_group_without_producers_is_asked_in_vain_and_given_up(tmp_path: Path) -> None:
    async with half_broker(tmp_path, transaction_check_max=2) as broker:
        broker.put_half(b"half")
        for _ in range(3):
            broker.pass_ms(TIMEOUT_MS)
            await broker.check()
        assert not broker.open_halves()
        (given_up,) = read_queue(broker.store, "TRANS_CHECK_MAX_TIME_TOPIC")
        assert given_up.stored_body == b"half"
        assert broker.topics.get("TRANS_CHECK_MAX_TIME_TOPIC") is not None


async def test_half_messages_of_a_group_without_producers_take_one_line_of_the_log_in_each_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with half_broker(tmp_path) as broker:
        for number in range(3):
            broker.put_half(b"half", f"TX{number}")
        for _ in range(2):
            broker.pass_ms(TIMEOUT_MS)
            await broker.check()
        line = "no producer of PG is online to check 3 half messages; the last is TX2"
        assert [r.getMessage() for r in caplog.records if "no producer" in r.getMessage()] == [line] * 2


async def test_a_half_that_has_become_too_large_delays_no_other(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        large = broker.put_half(b"x" * 200, "TX1")
        broker.put_half(b"small", "TX2")
        broker.store.appender.max_message_bytes = 100
        broker.pass_ms(TIMEOUT_MS)
        await broker.check()
        assert [decode_record(each.body).body for each in producer.questions()] == [b"small"]
        assert (await producer.end(large, COMMIT)).code == ResponseCode.MESSAGE_ILLEGAL
        assert broker.open_halves() == [0, 2]
        broker.store.appender.max_message_bytes = 1000
        assert (await producer.end(large, COMMIT)).code == 0
        assert broker.visible() == [b"x" * 200]


async def test_a_half_that_is_too_large_even_to_be_given_up_is_dropped(tmp_path: Path) -> None:
    async with half_broker(tmp_path, transaction_check_max=1) as broker:
        broker.put_half(b"x" * 200)
        for _ in range(2):
            broker.pass_ms(TIMEOUT_MS)
            await broker.check()
            broker.store.appender.max_message_bytes = 100
        assert not broker.open_halves() and not broker.visible()
        assert not read_queue(broker.store, "TRANS_CHECK_MAX_TIME_TOPIC")


async def test_halves_are_checked_when_the_clock_was_set_back(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        broker.put_half(b"before", "TX1")
        broker.step_ms(-3_600_000)
        broker.put_half(b"after", "TX2")
        await broker.check()
        assert not producer.questions(), "not before their time"
        broker.pass_ms(TIMEOUT_MS)
        await broker.check()
        assert [decode_record(each.body).body for each in producer.questions()] == [b"before", b"after"]


async def test_no_half_is_given_up_because_the_clock_was_set_ahead(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        half = broker.put_half(b"half")
        broker.step_ms(30 * 24 * 3_600_000)
        broker.pass_ms(TIMEOUT_MS)
        await broker.check()
        assert len(producer.questions()) == 1 and broker.open_halves() == [1]
        assert (await producer.end(half, COMMIT)).code == 0
        assert broker.visible() == [b"half"]
