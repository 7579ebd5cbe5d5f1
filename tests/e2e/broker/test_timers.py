"""Messages for any time, and taking them back."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from pathlib import Path

import pytest

from kourou.protocol.bodies import TimerMetricsSerializeWrapper, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import RecallMessageRequestHeader, SendMessageResponseHeader
from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer, messages
from tests.e2e.broker.delay_kit import clocked, count_in, pulled, settle

pytestmark = pytest.mark.e2e

TIMER = "rmq_sys_wheel_timer"
DAY_MS = 24 * 3_600_000


async def send(peer: Peer, timer: str, uniq_key: str = "ID1") -> RemotingCommand:
    return await peer.send(properties=f"UNIQ_KEY\x01{uniq_key}\x02TAGS\x01TagA\x02{timer}\x02")


async def recall(peer: Peer, handle: str | None, topic: str = "TopicTest") -> RemotingCommand:
    header = RecallMessageRequestHeader(producer_group="P", topic=topic, recall_handle=handle or "")
    return await peer.call(RequestCode.RECALL_MESSAGE, header)


def handle_of(answer: RemotingCommand) -> str | None:
    return answer.header(SendMessageResponseHeader).recall_handle


async def test_clients_cannot_write_waiting_messages_of_other_topics(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        target = "REAL_TOPIC\x01TopicTest\x02REAL_QID\x010\x02"
        forged = f"UNIQ_KEY\x01ID1\x02TIMER_OUT_MS\x01{clock() + 5_000}\x02{target}"
        answer = await peer.send(TIMER, b"forged", properties=forged)
        assert answer.code == ResponseCode.NO_PERMISSION
        clock.advance(10_000)
        await settle()
        assert count_in(peer) == count_in(peer, TIMER) == 0


@pytest.mark.parametrize(
    "timer", ["TIMER_DELAY_SEC\x0160", "TIMER_DELAY_MS\x0160000", "TIMER_DELIVER_MS\x01{at}"]
)
async def test_a_message_comes_at_its_time_and_not_before(tmp_path: Path, timer: str) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        sent_ms = clock()
        answer = await send(peer, timer.format(at=sent_ms + 60_000))
        assert answer.code == 0
        clock.advance(59_000)
        await settle()
        assert count_in(peer) == 0
        clock.advance(2_000)
        (message,) = await pulled(peer, 1)
        assert message.store_timestamp >= sent_ms + 60_000
        (waiting,) = messages(await peer.pull(TIMER))
        ours = {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
        kept = {name: value for name, value in message.properties.items() if name not in ours}
        assert kept == waiting.properties
        assert ours <= set(message.properties)
        assert sent_ms + 58_000 <= int(message.properties["TIMER_OUT_MS"]) <= sent_ms + 61_000


async def test_a_time_that_is_over_means_now(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        answer = await send(peer, "TIMER_DELIVER_MS\x011")
        assert handle_of(answer) is None
        assert count_in(peer) == 1


async def test_what_is_refused_and_in_which_words(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        answer = await send(peer, f"TIMER_DELAY_SEC\x01{3 * 86_400 + 1}")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "max delay 259200000ms" in (answer.remark or "")
        answer = await send(peer, "TIMER_DELAY_MS\x01soon")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "TIMER_DELAY_MS=soon is not a number" in (answer.remark or "")


async def test_a_broker_without_timers_says_so(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock(), timer_wheel_enable=False) as peer:
        answer = await send(peer, "TIMER_DELAY_SEC\x011")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable" in (answer.remark or "")


async def test_a_crowded_second_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock, timer_congest_num_each_slot=1) as peer:
        at = clock() // 1000 * 1000 + 30_500
        for number in range(2):
            assert (await send(peer, f"TIMER_DELIVER_MS\x01{at}", f"ID{number}")).code == 0
        timers = peer.controller.services.timers
        assert timers is not None
        async with asyncio.timeout(10):
            while timers.count_at(at) < 2:  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(0.01)
        answer = await send(peer, f"TIMER_DELIVER_MS\x01{at}", "ID4")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "flow control" in (answer.remark or "")
        assert (await send(peer, f"TIMER_DELIVER_MS\x01{at + 1000}", "ID4")).code == 0


async def test_a_message_is_recalled(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send(peer, "TIMER_DELAY_SEC\x0130", "ID1")
        second = await send(peer, "TIMER_DELAY_SEC\x0130", "ID2")
        handle = handle_of(second)
        assert handle is not None
        version, topic, broker, _, uniq_key = base64.urlsafe_b64decode(handle).decode().split(" ")
        assert (version, topic, broker, uniq_key) == ("v1", "TopicTest", "broker-a", "ID2")
        answer = await recall(peer, handle)
        assert (answer.code, answer.ext_fields) == (0, {"msgId": "ID2"})
        clock.advance(31_000)
        (message,) = await pulled(peer, 1)
        assert message.properties["UNIQ_KEY"] == "ID1"
        await settle()
        assert count_in(peer) == 1
        answer = await recall(peer, handle)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION


async def test_recalls_that_are_refused(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        handle = handle_of(await send(peer, "TIMER_DELAY_SEC\x0130"))
        answer = await recall(peer, handle, "Unknown")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        for wrong in ("", "%%%", "djEgYQ==", base64.urlsafe_b64encode(b"v1 TopicTest b 1 x").decode()):
            assert (await recall(peer, wrong)).code == ResponseCode.ILLEGAL_OPERATION
        peer.controller.services.update_config({"recallMessageEnable": "false"})
        answer = await recall(peer, handle)
        assert answer.code == ResponseCode.NO_PERMISSION


async def test_what_waits_comes_after_a_restart_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        for number in range(20):
            await send(peer, f"TIMER_DELAY_SEC\x01{10 + number % 5}", f"ID{number}")
        clock.advance(12_000)
        before = len(await pulled(peer, 8))
    clock.advance(10_000)
    async with clocked(tmp_path, clock) as peer:
        found = await pulled(peer, 20)
        await settle()
        assert count_in(peer) == 20
        assert before < 20
        assert {message.properties["UNIQ_KEY"] for message in found} == {f"ID{n}" for n in range(20)}


async def test_deliveries_that_no_note_counts_are_not_made_again(tmp_path: Path) -> None:
    """As after kill -9: the checkpoint is older than the last deliveries, the log of the wheel too."""
    note = tmp_path / "store" / "config" / "timercheck"
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send(peer, "TIMER_DELAY_SEC\x0110", "A")
        await send(peer, "TIMER_DELAY_SEC\x0112", "B")
    before = note.read_bytes()
    clock.advance(11_000)
    async with clocked(tmp_path, clock) as peer:
        await send(peer, "TIMER_DELAY_SEC\x013", "C")
        await pulled(peer, 1)
    note.write_bytes(before)
    clock.advance(5_000)
    async with clocked(tmp_path, clock) as peer:
        found = await pulled(peer, 3)
        await settle()
        assert count_in(peer) == 3
        assert {message.properties["UNIQ_KEY"] for message in found} == {"A", "B", "C"}


async def test_two_kills_in_a_row_deliver_nothing_twice(tmp_path: Path) -> None:
    """The second one hits a broker that has not come to the slots which the first kill left half done."""
    note = tmp_path / "store" / "config" / "timercheck"
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send(peer, "TIMER_DELAY_SEC\x0110", "A")
    before = note.read_bytes()
    clock.advance(12_000)
    async with clocked(tmp_path, clock) as peer:
        await pulled(peer, 1)
    note.write_bytes(before)
    async with clocked(tmp_path, clock, timer_stop_dequeue=True) as peer:
        await settle()
    async with clocked(tmp_path, clock) as peer:
        clock.advance(5_000)
        await settle(1.0)
        assert count_in(peer) == 1


async def test_how_far_the_timers_are_can_be_asked(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send(peer, "TIMER_DELAY_SEC\x0130", "A")
        await settle()
        answer = await peer.call(RequestCode.GET_TIMER_CHECK_POINT)
        read_ms, log_pos, queue_offset, master_offset, *_ = struct.unpack(">7q", answer.body)
        assert (log_pos, queue_offset, master_offset) == (52, 1, 1)
        assert clock() - 2_000 < read_ms <= clock()


async def test_how_many_wait_for_each_topic_can_be_asked(tmp_path: Path) -> None:
    """GET_TIMER_METRICS; Apache's own file says the same, so that its numbers go on from ours."""
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        for number, seconds in enumerate((10, 10, 40)):
            recalled = await send(peer, f"TIMER_DELAY_SEC\x01{seconds}", f"ID{number}")
        await peer.send("Other", properties="UNIQ_KEY\x01B\x02TIMER_DELAY_SEC\x0110\x02")
        assert await waiting_counts(peer, {"TopicTest": 3, "Other": 1})
        handle = handle_of(recalled)
        assert handle is not None and (await recall(peer, handle)).code == 0
        assert await waiting_counts(peer, {"TopicTest": 2, "Other": 1})
        clock.advance(12_000)
        assert await waiting_counts(peer, {"TopicTest": 0, "Other": 0})
    stored = json.loads((tmp_path / "store" / "config" / "timermetrics").read_text())
    assert {topic: metric["count"] for topic, metric in stored["timingCount"].items()} == {
        "TopicTest": 0,
        "Other": 0,
    }
    assert stored["dataVersion"]["counter"] >= 5
    async with clocked(tmp_path, clock) as peer:
        await send(peer, "TIMER_DELAY_SEC\x0110", "ID9")
        assert await waiting_counts(peer, {"TopicTest": 1, "Other": 0})
        answer = await peer.call(RequestCode.GET_TIMER_METRICS)
        metrics = decode_body(answer.body, TimerMetricsSerializeWrapper)
        assert metrics.data_version.counter > stored["dataVersion"]["counter"]
        assert abs(metrics.timing_count["TopicTest"].time_stamp - clock()) < 5_000


async def waiting_counts(peer: Peer, expected: dict[str, int]) -> bool:
    """Wait until so many messages wait."""
    async with asyncio.timeout(10):
        while True:
            answer = await peer.call(RequestCode.GET_TIMER_METRICS)
            metrics = decode_body(answer.body, TimerMetricsSerializeWrapper)
            if {topic: metric.count for topic, metric in metrics.timing_count.items()} == expected:
                return True
            await asyncio.sleep(0.01)


async def test_a_broker_without_timers_has_neither_numbers_nor_progress(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock(), timer_wheel_enable=False) as peer:
        for code, words in (
            (RequestCode.GET_TIMER_METRICS, "The timer message store is null: timerWheelEnable is false"),
            (RequestCode.GET_TIMER_CHECK_POINT, "The checkpoint is null: timerWheelEnable is false"),
        ):
            answer = await peer.call(code)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith(words)


async def test_a_long_way_is_gone_in_steps(tmp_path: Path) -> None:
    """Longer than the wheel's window: stored again on the way, so that its record does not grow old."""
    clock = FakeClock()
    async with clocked(tmp_path, clock, timer_max_delay_sec=30 * 86_400) as peer:
        answer = await send(peer, f"TIMER_DELAY_SEC\x01{5 * 86_400}")
        await settle()
        for day in range(1, 6):
            assert count_in(peer) == 0, day
            clock.advance(DAY_MS + 1_000)
            await settle(0.5)
        (message,) = await pulled(peer, 1)
        assert int(message.properties["TIMER_ROLL_TIMES"]) >= 1
        assert handle_of(answer) is not None
        assert count_in(peer, TIMER) == 1 + int(message.properties["TIMER_ROLL_TIMES"])
