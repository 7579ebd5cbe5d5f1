"""Acks and changes of the invisible time that are forged, of the past, of others, or too many: no message is
lost, and none is acknowledged that was not meant."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from kourou.broker.storage.inner_message import InnerMessage
from kourou.broker.storage.record_reads import RecordReader
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeResponseHeader
from kourou.protocol.pop.retry_topics import PopTopicKind
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.testing.clock import FakeClock
from tests.e2e.broker.delay_kit import clocked, settle
from tests.e2e.broker.pop_kit import (
    GROUP,
    INVISIBLE_MS,
    TOPIC,
    ack,
    ack_header,
    batch_ack,
    batch_of,
    bodies,
    change,
    in_flight,
    prepare,
    take,
    until,
)

pytestmark = pytest.mark.e2e


async def test_a_handle_that_contradicts_its_request_is_refused(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        await prepare(peer, 4)
        handle, _ = await take(peer, [0, 1])
        illegal, no_message = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE
        cases = [
            (ack_header(handle, queue_offset=1), illegal, "offset 0"),
            (ack_header(handle, queue_id=9), illegal, "queueId[9]"),
            (ack_header(handle, queue_id=-1), illegal, "queueId[-1]"),
            (ack_header(handle, queue_offset=5), no_message, "offset is illegal"),
            (ack_header(handle, queue_offset=-1), no_message, "offset is illegal"),
            (ack_header(handle, topic="Unknown"), ResponseCode.TOPIC_NOT_EXIST, "Unknown"),
            (ack_header(handle._replace(kind=PopTopicKind.RETRY_V1)), illegal, "another topic"),
            (ack_header(handle._replace(broker_name="broker-z")), illegal, "broker-z"),
        ]
        for header, code, words in cases:
            answer = await peer.call(RequestCode.ACK_MESSAGE, header)
            assert (answer.code, words in (answer.remark or "")) == (code, True), answer.remark
        for text in ("", "forged", "0 1 2 3 9 broker-a 0 0", "1 " * 4_000):
            forged = AckMessageRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=0, extra_info=text, queue_offset=0
            )
            assert (await peer.call(RequestCode.ACK_MESSAGE, forged)).code != 0
        assert in_flight(peer).count(TOPIC, GROUP) == 2


async def test_forged_acks_between_good_ones_of_the_same_pop_are_refused(tmp_path: Path) -> None:
    """One read brings them all: that the first is admitted says nothing for others."""
    async with clocked(tmp_path, FakeClock()) as peer:
        await prepare(peer, 4)
        first, second, third = await take(peer, [0, 1, 2])
        illegal, no_message = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE
        cases = [
            (ack_header(first), 0),
            (ack_header(first, queue_offset=1), illegal),
            (ack_header(second._replace(queue_offset=5)), no_message),
            (ack_header(second._replace(broker_name="broker-z")), illegal),
            (ack_header(second, topic="Unknown"), ResponseCode.TOPIC_NOT_EXIST),
            (ack_header(second, group="others"), 0),
            (ack_header(third), 0),
        ]
        answers = await asyncio.gather(*(peer.call(RequestCode.ACK_MESSAGE, header) for header, _ in cases))
        assert [answer.code for answer in answers] == [code for _, code in cases]
        assert in_flight(peer).count(TOPIC, GROUP) == 1
        assert (in_flight(peer).counts.acked, in_flight(peer).counts.late_acks) == (2, 1)
        peer.controller.services.topics.delete(TOPIC)
        assert (await ack(peer, second)).code == ResponseCode.TOPIC_NOT_EXIST, "checked anew each time"


async def test_an_ack_for_what_is_not_in_flight_is_answered_and_writes_nothing(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        await prepare(peer, 4)
        handle, _ = await take(peer, [0, 1])
        end = peer.controller.services.store.max_phy_offset
        for other in (
            handle._replace(pop_time=handle.pop_time - 1),
            handle._replace(start_offset=1),
            handle._replace(queue_offset=2),
        ):
            assert (await ack(peer, other)).code == 0
        assert (await ack(peer, handle, group="others")).code == 0
        assert peer.controller.services.store.max_phy_offset == end
        assert in_flight(peer).count(TOPIC, GROUP) == 2
        assert in_flight(peer).counts.late_acks == 4


async def test_an_ack_that_comes_twice_or_late_changes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        first, second = await take(peer, [0, 1])
        answers = await asyncio.gather(ack(peer, first), ack(peer, first))
        assert [answer.code for answer in answers] == [0, 0]
        assert (await ack(peer, first)).code == 0
        assert in_flight(peer).count(TOPIC, GROUP) == 1
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: bodies(peer) == ["1"])
        assert (await ack(peer, second)).code == 0
        await settle()
        assert bodies(peer) == ["1"]


async def test_a_change_of_what_is_not_in_flight_is_refused_with_a_header(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        first, second = await take(peer, [0, 1])
        await ack(peer, first)
        cases = [
            (first, INVISIBLE_MS, ResponseCode.MESSAGE_ILLEGAL),
            (second._replace(queue_offset=2), INVISIBLE_MS, ResponseCode.NO_MESSAGE),
            (second, -1, ResponseCode.INVALID_PARAMETER),
            (second, 1 << 62, ResponseCode.INVALID_PARAMETER),
            (second, 30 * 24 * 3_600_000, ResponseCode.MESSAGE_ILLEGAL),
        ]
        for handle, invisible_ms, code in cases:
            answer, _ = await change(peer, handle, invisible_ms)
            assert answer.code == code, answer.remark
            assert answer.header(ChangeInvisibleTimeResponseHeader).pop_time == 0
        # Refused, and as before.
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: bodies(peer) == ["1"])


async def test_only_one_of_two_changes_at_once_succeeds(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 1)
        (handle,) = await take(peer, [0])
        both = await asyncio.gather(*(change(peer, handle, 2 * INVISIBLE_MS) for _ in range(2)))
        assert sorted(answer.code for answer, _ in both) == [0, ResponseCode.MESSAGE_ILLEGAL]
        assert in_flight(peer).count(TOPIC, GROUP) == 1


async def test_batches(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        await prepare(peer, 4)
        handles = await take(peer, [0, 1])
        assert (await batch_ack(peer)).code == ResponseCode.NO_MESSAGE
        assert (await peer.call(RequestCode.BATCH_ACK_MESSAGE)).code == ResponseCode.NO_MESSAGE
        assert (await batch_ack(peer, batch_of(handles, bit_set="A" * 100_000))).code == (
            ResponseCode.INVALID_PARAMETER
        )
        for wrong in ({"bit_set": "?"}, {"retry": "7"}):
            assert (await batch_ack(peer, batch_of(handles), batch_of(handles, **wrong))).code != 0
        assert (await peer.call(RequestCode.BATCH_ACK_MESSAGE, None, b"{")).code != 0
        huge = [b"{},", b'{"b":"AQ==","c":"%s","q":0,"t":"%s"},' % (GROUP.encode(), TOPIC.encode())]
        for part in huge:
            for count in (5_000, 700_000):
                body = b'{"acks":[' + (part * count)[:-1] + b'],"brokerName":"broker-a"}'
                refused = await peer.call(RequestCode.BATCH_ACK_MESSAGE, None, body[: 15 * 1024 * 1024])
                assert refused.code != 0 and "send it in parts" in (refused.remark or "")
        assert in_flight(peer).count(TOPIC, GROUP) == 2, "a request with an error has no effect"
        others = [
            batch_of(handles, consumer_group="others"),
            batch_of(handles, topic="Unknown"),
            batch_of(handles, queue_id=-5),
            batch_of(handles, start_offset=1 << 62),
            batch_of(handles, retry="1"),
        ]
        assert (await batch_ack(peer, *others)).code == 0
        assert in_flight(peer).count(TOPIC, GROUP) == 2
        assert (await batch_ack(peer, *others, batch_of(handles[1:]))).code == 0
        assert in_flight(peer).count(TOPIC, GROUP) == 1


async def test_without_timers_nothing_is_taken(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock(), timer_wheel_enable=False) as peer:
        await prepare(peer, 1)
        with pytest.raises(RequestError, match="timerWheelEnable") as caught:
            await take(peer, [0])
        assert caught.value.response_code == ResponseCode.SYSTEM_ERROR


async def test_acks_that_cannot_be_stored_are_refused_and_their_messages_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowded second stands for all reasons."""
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        handles = await take(peer, [0, 1])

        def refuse(*_: object) -> None:
            raise PutRefusedError(PutStatus.WHEEL_TIMER_FLOW_CONTROL, "crowded")

        with monkeypatch.context() as patch:
            patch.setattr(peer.controller.services.delayed, "wait_until", refuse)
            assert (await ack(peer, handles[0])).code == ResponseCode.SYSTEM_ERROR
            assert (await batch_ack(peer, batch_of(handles))).code == ResponseCode.SYSTEM_ERROR
            answer, _ = await change(peer, handles[1], INVISIBLE_MS)
            assert answer.code == ResponseCode.SYSTEM_ERROR
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: bodies(peer) == ["0", "1"])
        await until(lambda: in_flight(peer).count(TOPIC, GROUP) == 0)


async def test_messages_that_cannot_be_put_now_come_when_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 3)
        handles = await take(peer, [0, 1, 2])
        attempts = []

        def refuse(message: InnerMessage, *_: object, **__: object) -> None:
            attempts.append(message.topic)
            raise PutRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")

        with monkeypatch.context() as patch:
            services = peer.controller.services
            # Without a kernel all are put so; with one, those that find no room in the log.
            patch.setattr(services.store.appender, "run_room", lambda: None)
            patch.setattr(services.writer, "put_now", refuse)
            clock.advance(INVISIBLE_MS + 200)
            await until(lambda: bool(attempts))
            clock.advance(5_000)
            # The clock stands still behind this attempt, so that the ack comes before the next one.
            await until(lambda: len(attempts) > 1)
            await settle()
            assert in_flight(peer).count(TOPIC, GROUP) == 3
        assert (await ack(peer, handles[1])).code == 0
        clock.advance(20_000)
        await until(lambda: bodies(peer) == ["0", "2"])
        await until(lambda: in_flight(peer).count(TOPIC, GROUP) == 0)
        assert sum("cannot be delivered again now" in record.message for record in caplog.records) == 1


async def test_messages_that_cannot_be_read_now_come_when_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 1)
        await take(peer, [0])

        async def fail(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(ConsumeQueue, "read_units_nowait", lambda *_: None)
            patch.setattr(RecordReader, "read", fail)
            clock.advance(INVISIBLE_MS + 200)
            await until(lambda: "cannot be delivered again now, retrying" in caplog.text)
        clock.advance(20_000)
        await until(lambda: bodies(peer) == ["0"])
