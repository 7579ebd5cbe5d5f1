"""Delay levels on a real broker: when a message comes, what it looks like then, and that it comes once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.broker.controller import BrokerController
from kourou.errors import StorageError
from kourou.protocol.bodies import DelayOffsetSerializeWrapper, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.testing.clock import FakeClock
from kourou.testing.faulty_files import FaultyFiles
from tests.e2e.broker.broker_kit import Peer, config, messages, send_header
from tests.e2e.broker.delay_kit import clocked, count_in, pulled, settle

pytestmark = pytest.mark.e2e

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def delayed(level: object, uniq_key: str = "ID1") -> str:
    return f"UNIQ_KEY\x01{uniq_key}\x02TAGS\x01TagA\x02KEYS\x01k1\x02DELAY\x01{level}\x02WAIT\x01true\x02"


async def test_a_message_comes_when_its_delay_is_over_and_not_before(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        answer = await peer.send(properties=delayed(4), queue_id=3, flag=7)
        sent = answer.header(SendMessageResponseHeader)
        assert (answer.code, sent.queue_id, sent.queue_offset) == (0, 3, 0)
        (waiting,) = messages(await peer.pull(SCHEDULE, queue_id=3))
        assert waiting.phy_offset == parse_offset_msg_id(sent.msg_id).phy_offset
        clock.advance(29_000)
        await settle()
        assert count_in(peer, queue_id=3) == 0
        clock.advance(1_000)
        (message,) = await pulled(peer, 1, queue_id=3)
        assert message.store_timestamp >= waiting.store_timestamp + 30_000
        assert message.properties == waiting.properties
        assert {**message.properties, "CLUSTER": ""} == {
            **{"UNIQ_KEY": "ID1", "TAGS": "TagA", "KEYS": "k1", "DELAY": "4", "WAIT": "true"},
            **{"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": ""},
            **{"REAL_TOPIC": "TopicTest", "REAL_QID": "3"},
        }
        assert (message.flag, message.born_timestamp, message.raw_born_host) == (
            waiting.flag,
            waiting.born_timestamp,
            waiting.raw_born_host,
        )


async def test_a_delivery_that_joins_an_open_batch_is_not_early_by_its_store_timestamp(
    tmp_path: Path,
) -> None:
    clock = FakeClock(1_700_000_000_000)
    async with clocked(tmp_path, clock) as peer:
        await peer.send(properties=delayed(1))
        (waiting,) = messages(await peer.pull(SCHEDULE, queue_id=0))
        clock.advance(999)
        # One batch has one timestamp: that of its first message.
        store = peer.controller.services.store
        store.begin_cycle()
        store.appender.put(
            store.queue("TopicTest", 1),
            b"the first",
            b"",
            tags_code=0,
            keys=(),
            born_timestamp=0,
            born_host=bytes(8),
            sys_flag=0,
            done=lambda *_: None,
        )
        clock.advance(1)
        await settle()
        assert count_in(peer) == 0
        await peer.send(queue_id=2)  # ends the batch
        (message,) = await pulled(peer, 1)
        assert message.store_timestamp == waiting.store_timestamp + 1_000


async def test_a_delivered_message_is_filtered_and_found_like_any_other(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await peer.send(properties=delayed(1))
        clock.advance(1_000)
        await pulled(peer, 1)
        assert len(messages(await peer.pull(subscription="TagA"))) == 1
        assert not messages(await peer.pull(subscription="TagB", sys_flag=4))
        store = peer.controller.services.store
        found = store.query_message("TopicTest", "k1", 32, 0, 1 << 62)
        assert [message.topic for message in found] == ["TopicTest"]


async def test_a_level_above_the_last_is_the_last(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock, message_delay_level="1s 2m") as peer:
        await peer.send(properties=delayed(18))
        (waiting,) = messages(await peer.pull(SCHEDULE, queue_id=1))
        assert waiting.properties["DELAY"] == "2"
        clock.advance(120_000)
        assert len(await pulled(peer, 1)) == 1


@pytest.mark.parametrize("level", ["x", "1.5", "", "９", "9" * 30])
async def test_a_level_that_is_no_number_is_refused_with_words(tmp_path: Path, level: str) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        answer = await peer.send(properties=delayed(level))
        if level:  # a property without a value is none
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "property DELAY=" in (answer.remark or "")
        else:
            assert answer.code == 0


@pytest.mark.parametrize("level", ["0", "-3"])
async def test_a_level_of_nothing_is_no_delay(tmp_path: Path, level: str) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        await peer.send(properties=delayed(level))
        (message,) = await pulled(peer, 1)
        assert message.properties["DELAY"] == level


async def test_a_level_wins_over_a_time(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        await peer.send(properties=delayed(1) + "TIMER_DELAY_SEC\x0199999999\x02")
        (waiting,) = messages(await peer.pull(SCHEDULE))
        assert "TIMER_DELAY_SEC" not in waiting.properties


async def test_order_and_many_levels_at_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        for number in range(30):
            await peer.send(body=b"%d" % number, properties=delayed(1 + number % 3, f"ID{number}"))
        clock.advance(10_000)
        bodies = [int(message.body) for message in await pulled(peer, 30)]
        for level in range(3):
            assert [n for n in bodies if n % 3 == level] == list(range(level, 30, 3))


async def test_a_backlog_is_larger_than_one_pass(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        for number in range(60):
            await peer.send(body=b"x" * 20_000, properties=delayed(1, f"ID{number}"))
        clock.advance(1_000)
        found = await pulled(peer, 60)
        assert [message.properties["UNIQ_KEY"] for message in found] == [f"ID{n}" for n in range(60)]


async def test_what_waits_comes_after_a_restart_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await peer.send(properties=delayed(1, "ID1"))
        await peer.send(properties=delayed(5, "ID2"))
        clock.advance(1_000)
        await pulled(peer, 1)
    clock.advance(60_000)
    async with clocked(tmp_path, clock) as peer:
        found = await pulled(peer, 2)
        assert [message.properties["UNIQ_KEY"] for message in found] == ["ID1", "ID2"]
        await settle()
        assert count_in(peer) == 2


async def test_deliveries_that_no_note_counts_are_not_made_again(tmp_path: Path) -> None:
    """As after kill -9 right after a delivery: the file still says what it said before."""
    note = tmp_path / "store" / "config" / "delayOffset.json"
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        for number in range(5):
            await peer.send(properties=delayed(1, f"A{number}"))
    before = note.read_bytes()
    clock.advance(1_000)
    async with clocked(tmp_path, clock) as peer:
        await pulled(peer, 5)
        await peer.send(properties=delayed(1, "B"))
    note.write_bytes(before)
    clock.advance(1_000)
    async with clocked(tmp_path, clock) as peer:
        found = await pulled(peer, 6)
        await settle()
        assert count_in(peer) == 6
        assert found[-1].properties["UNIQ_KEY"] == "B"


async def test_a_note_that_apache_wrote_counts_as_it_is(tmp_path: Path) -> None:
    note = tmp_path / "store" / "config" / "delayOffset.json"
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        for number in range(3):
            await peer.send(properties=delayed(1, f"A{number}"))
    note.write_text('{\n\t"offsetTable":{1:2\n\t}\n}')
    clock.advance(1_000)
    async with clocked(tmp_path, clock) as peer:
        (found,) = await pulled(peer, 1)
        assert found.properties["UNIQ_KEY"] == "A2"
        await settle()
        assert count_in(peer) == 1


async def test_fewer_levels_do_not_strand_what_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await peer.send(properties=delayed(5))
    clock.advance(60_000)
    async with clocked(tmp_path, clock, message_delay_level="1s 5s") as peer:
        assert len(await pulled(peer, 1)) == 1


async def test_shorter_levels_do_not_bring_anything_early(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock, message_delay_level="1h") as peer:
        await peer.send(properties=delayed(1))
    async with clocked(tmp_path, clock, message_delay_level="1s") as peer:
        clock.advance(5_000)
        await settle()
        assert count_in(peer) == 0
        clock.advance(3_600_000)
        await pulled(peer, 1)


@pytest.mark.parametrize("delay", ["DELAY\x011", "TIMER_DELAY_MS\x011000"])
async def test_what_the_store_refuses_waits_and_says_so_once(
    tmp_path: Path, delay: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await peer.send(properties=f"UNIQ_KEY\x01ID1\x02{delay}\x02")
        appender = peer.controller.services.store.appender
        appender.refuse("test", StorageError("the disk is full"))
        clock.advance(3_000)
        await settle(0.5)
        assert count_in(peer) == 0
        appender.refuse("test", None)
        assert len(await pulled(peer, 1)) == 1
        reported = [record for record in caplog.records if "the disk is full" in record.getMessage()]
        assert len(reported) == 1


async def test_a_write_that_fails_is_tried_again(tmp_path: Path) -> None:
    clock, files = FakeClock(), FaultyFiles()
    controller = BrokerController(config(tmp_path), files=files, clock=clock)
    await controller.start()
    peer = Peer(controller)
    try:
        for number in range(3):
            await peer.send(properties=delayed(1, f"ID{number}"))
        files.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
        clock.advance(1_000)
        found = await pulled(peer, 3)
        assert [message.properties["UNIQ_KEY"] for message in found] == ["ID0", "ID1", "ID2"]
        await settle()
        assert count_in(peer) == 3
    finally:
        await peer.client.stop()
        await controller.stop()


async def test_how_far_each_level_is_can_be_asked(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await peer.send(properties=delayed(1))
        await peer.send(properties=delayed(3))
        clock.advance(1_000)
        await pulled(peer, 1)
        answer = await peer.call(RequestCode.GET_ALL_DELAY_OFFSET)
        assert decode_body(answer.body, DelayOffsetSerializeWrapper).offset_table == {1: 1}


async def test_a_batch_cannot_be_delayed(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        header = send_header("TopicTest", "DELAY\x011\x02", batch=True)
        answer = await peer.call(RequestCode.SEND_BATCH_MESSAGE, header, b"whatever")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "batch" in (answer.remark or "")


async def test_a_one_way_message_is_delayed_too(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await peer.send()  # makes the topic
        await peer.oneway(RequestCode.SEND_MESSAGE_V2, send_header("TopicTest", delayed(1)), b"later")
        await pulled(peer, 1, SCHEDULE)
        assert count_in(peer) == 1
        clock.advance(1_000)
        assert [message.body for message in await pulled(peer, 2)] == [b"hello", b"later"]
