"""Messages in flight after a stop, after kill -9 at different moments, and as another broker has left them.

A kill is a copy of the store's files as they are while the broker runs; the next broker works on the copy.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from kourou.broker.storage.inner_message import InnerMessage
from kourou.protocol.names import REVIVE_GROUP
from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.delay_kit import clocked, settle
from tests.e2e.broker.pop_kit import (
    GROUP,
    INVISIBLE_MS,
    RETRY,
    REVIVE,
    TOPIC,
    ack,
    bodies,
    change,
    in_flight,
    prepare,
    stored,
    take,
    until,
)

pytestmark = pytest.mark.e2e


def killed(root: Path, name: str) -> Path:
    """What a kill at this moment would leave."""
    shutil.copytree(root / "store", root / name / "store")
    return root / name


def offset_of(peer: Peer, topic: str = TOPIC) -> int:
    return peer.controller.services.offsets.query(GROUP, topic, 0)


async def revived(peer: Peer, clock: FakeClock, ms: int = INVISIBLE_MS) -> list[str]:
    """What is in the retry topic when all invisible times are over."""
    clock.advance(ms + 200)
    await settle(0.5)
    clock.advance(5_000)
    await settle(0.5)
    assert in_flight(peer).count(TOPIC, GROUP) == 0
    return sorted(bodies(peer))


async def test_what_is_in_flight_survives_a_stop(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 4)
        handles = await take(peer, [0, 1, 3])
        await ack(peer, handles[0])
    async with clocked(tmp_path, clock) as peer:
        assert in_flight(peer).count(TOPIC, GROUP) == 2
        assert (await ack(peer, handles[2])).code == 0
        assert await revived(peer, clock) == ["1"]


async def test_a_time_that_ends_while_the_broker_is_down_is_over_at_its_start(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        await take(peer, [0, 1])
    clock.advance(10 * INVISIBLE_MS)
    async with clocked(tmp_path, clock) as peer:
        await until(lambda: bodies(peer) == ["0", "1"], seconds=2)
        assert await revived(peer, clock) == ["0", "1"]


async def test_a_kill_right_after_a_pop_neither_loses_it_nor_pops_again(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 4)
        copies = [killed(tmp_path, "unpopped")]
        await take(peer, [0, 1])
        await take(peer, [2, 3])
        copies.append(killed(tmp_path, "popped"))
    start_ms = clock()
    for copy, popped in zip(copies, (0, 4), strict=True):
        clock = FakeClock(start_ms)
        async with clocked(copy, clock) as peer:
            assert in_flight(peer).count(TOPIC, GROUP) == popped
            assert offset_of(peer) == (popped or -1)
            assert await revived(peer, clock) == ["0", "1", "2", "3"][:popped]


async def test_no_ack_that_was_answered_is_lost_by_a_kill(tmp_path: Path) -> None:
    clock, copies = FakeClock(), []
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 3)
        handles = await take(peer, [0, 1, 2])
        for handle in handles:
            assert (await ack(peer, handle)).code == 0
            copies.append(killed(tmp_path, f"acked-{handle.queue_offset}"))
        await settle()  # the timers have entered or dropped the records
        copies.append(killed(tmp_path, "settled"))
    start_ms = clock()
    for copy, left in zip(copies, (["1", "2"], ["2"], [], []), strict=True):
        clock = FakeClock(start_ms)
        async with clocked(copy, clock) as peer:
            assert await revived(peer, clock) == left


async def test_a_stop_leaves_no_check_point_without_its_acks(tmp_path: Path) -> None:
    """The timers have entered the check point, and pass over nothing that a restart needs beside it."""
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        handles = await take(peer, [0, 1])
        await settle()  # it is entered
        for handle in handles:
            assert (await ack(peer, handle)).code == 0
        await settle(1.5)  # the acks, too, and all is written
        copy = killed(tmp_path, "entered")
    start_ms = clock()
    for root in (tmp_path, copy):
        clock = FakeClock(start_ms)
        async with clocked(root, clock) as peer:
            assert in_flight(peer).count(TOPIC, GROUP) == 0
            assert await revived(peer, clock) == []


async def test_a_kill_around_the_end_of_the_time_delivers_each_message_again(tmp_path: Path) -> None:
    """Before and after the timers have delivered the check point, and after the messages were put."""
    clock, copies = FakeClock(), []
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 3)
        handles = await take(peer, [0, 1, 2])
        await ack(peer, handles[0])
        await settle()
        copies.append((killed(tmp_path, "waits"), clock()))
        clock.advance(INVISIBLE_MS - 1_000)
        copies.append((killed(tmp_path, "nearly"), clock()))
        clock.advance(1_200)
        await until(lambda: len(bodies(peer)) == 2)
        copies.append((killed(tmp_path, "revived"), clock()))
        clock.advance(3_000)
        await until(lambda: len(stored(peer, REVIVE, 3)) > 0)
        await settle()
        copies.append((killed(tmp_path, "delivered"), clock()))
    for copy, now_ms in copies:
        clock = FakeClock(now_ms)
        async with clocked(copy, clock) as peer:
            assert await revived(peer, clock) == ["1", "2"], copy.name


async def test_what_was_revived_while_the_timers_were_late_is_not_revived_again(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock, timer_stop_dequeue=True) as peer:
        await prepare(peer, 2)
        await take(peer, [0, 1])
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: bodies(peer) == ["0", "1"])
        queue_id = 3
        offsets = peer.controller.services.offsets
        await until(lambda: offsets.query(REVIVE_GROUP, REVIVE, queue_id) >= 0)
        offsets.persist()
        copy = killed(tmp_path, "killed")
    async with clocked(copy, clock) as peer:
        assert in_flight(peer).count(TOPIC, GROUP) == 0
        assert await revived(peer, clock) == ["0", "1"]


async def test_a_changed_time_survives_a_kill(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        handles = await take(peer, [0, 1])
        answer, new = await change(peer, handles[0], 3 * INVISIBLE_MS)
        assert answer.code == 0
        copy = killed(tmp_path, "changed")
    async with clocked(copy, clock) as peer:
        assert offset_of(peer) == 2
        clock.advance(2 * INVISIBLE_MS)
        await until(lambda: bodies(peer) == ["1"])
        assert (await ack(peer, new)).code == 0
        assert await revived(peer, clock, 2 * INVISIBLE_MS) == ["1"]


async def test_a_changed_time_moves_no_group_forward_that_was_set_back(tmp_path: Path) -> None:
    """Its check point is newer than the offsets on disk, and no pop."""
    clock = FakeClock()
    async with clocked(tmp_path, clock, flush_consumer_offset_interval=100) as peer:
        await prepare(peer, 2)
        handles = await take(peer, [0, 1])
        peer.controller.services.offsets.commit(GROUP, TOPIC, 0, 0, "test")
        path = tmp_path / "store" / "config" / "consumerOffset.json"
        await until(lambda: path.exists() and f'"{TOPIC}@{GROUP}":{{0:0}}' in _squeezed(path))
        await settle(0.2)
        await change(peer, handles[1], 5 * INVISIBLE_MS)
        copy = killed(tmp_path, "set-back")
    async with clocked(copy, clock) as peer:
        assert offset_of(peer) == 0
        assert in_flight(peer).count(TOPIC, GROUP) == 2


def _squeezed(path: Path) -> str:
    return "".join(path.read_text().split())


async def test_offsets_count_all_pops_whose_records_lie_below_the_note(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        await take(peer, [0, 1])
    text = (tmp_path / "store" / "config" / "consumerOffset.json").read_text()
    note = f'"__kourouPoppedFrom":{{"{REVIVE}":{{}},"rmq_sys_wheel_timer":{{"0":1}}}}'
    assert note in "".join(text.split())


async def test_pops_with_a_short_time_count_too(tmp_path: Path) -> None:
    """Their check points go to the revive queue at once."""
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        handles = await take(peer, [0, 1], invisible_time_ms=1_000)
        assert [record.topic for record in stored(peer, REVIVE, 3)] == [REVIVE]
        await ack(peer, handles[0])
        copy = killed(tmp_path, "short")
        clock.advance(5_000)
        await settle()
        assert bodies(peer) == ["1"]
    async with clocked(copy, clock) as peer:
        assert offset_of(peer) == 2
        assert await revived(peer, clock) == ["1"]


async def test_a_clock_that_is_set_back_keeps_no_message_invisible_for_longer(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        await take(peer, [0])
        clock.step(-3_600_000)
        peer.controller.services.clock_watch.look()
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: bodies(peer) == ["0"])
        await take(peer, [1])
    clock.step(-3_600_000)
    async with clocked(tmp_path, clock) as peer:
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: bodies(peer) == ["0", "1"])


async def test_a_slave_that_becomes_master_and_a_broker_without_timers_revive_nothing_meanwhile(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 1)
        (handle,) = await take(peer, [0])
    for keys in ({"broker_role": "SLAVE", "broker_id": 1}, {"timer_wheel_enable": False}):
        async with clocked(tmp_path, clock, **keys) as peer:
            clock.advance(INVISIBLE_MS)
            await settle()
            assert bodies(peer) == []
            answer = await ack(peer, handle)
            assert answer.code == (11 if "broker_role" in keys else 0)
    async with clocked(tmp_path, clock) as peer:
        await until(lambda: bodies(peer) == ["0"])


# -- what Apache's broker has written ----------------------------------------------------------------


def put_record(peer: Peer, tag: str, body: object, deliver_ms: int, queue_id: int = 0) -> None:
    """Put a record of the revive topic that this broker's table does not know."""
    services = peer.controller.services
    properties = f"TAGS\x01{tag}\x02UNIQ_KEY\x01any\x02TIMER_DELIVER_MS\x01{deliver_ms}\x02"
    message = InnerMessage(
        REVIVE, queue_id, json.dumps(body).encode(), properties, services.now_ms(), services.store_host
    )
    services.writer.put(message, None)


def check_point(now_ms: int, **fields: object) -> dict[str, object]:
    return {
        "so": 0,
        "pt": now_ms,
        "it": INVISIBLE_MS,
        "bm": 0,
        "n": 3,
        "q": 0,
        "t": TOPIC,
        "c": GROUP,
        "ro": 0,
        "bn": "broker-a",
        "reviveTime": now_ms + INVISIBLE_MS,
        **fields,
    }


def ack_body(now_ms: int, **fields: object) -> dict[str, object]:
    return {"so": 0, "c": GROUP, "t": TOPIC, "q": 0, "pt": now_ms, "bn": "broker-a", **fields}


LONG = {
    "ackOffset": 1,
    "startOffset": 0,
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": 0,
    "brokerName": "broker-a",
}


@pytest.mark.parametrize("is_delivered", [False, True])
async def test_records_of_another_broker_are_taken_over(tmp_path: Path, is_delivered: bool) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 8)
        now_ms = clock()
        peer.controller.services.groups.find(GROUP)
        peer.controller.services.offsets.commit(GROUP, TOPIC, 0, 8, "test")
        records = [
            ("ck", check_point(now_ms)),
            ("ack", ack_body(now_ms, ao=0)),
            ("ck", check_point(now_ms, so=3, n=3, d=[0, 1, 4], bm=2)),
            ("bAck", ack_body(now_ms, so=3, ao=-1, aol=[3, 99])),
            ("ack", {**LONG, "popTime": now_ms}),
            ("bAck", ack_body(now_ms, so=1, ao=-1, aol=[1, 2])),
            ("ack", ack_body(now_ms - 1, ao=2)),
            ("ck", "no check point"),
        ]
        for tag, body in records:
            due_ms = now_ms if is_delivered else now_ms + INVISIBLE_MS - (1_000 if tag == "ck" else 0)
            put_record(peer, tag, body, due_ms, queue_id=3)
        # Before the running broker reads them: they are another one's.
        peer.controller.services.cycles.close()
        peer.controller.services.offsets.persist()
        copy = killed(tmp_path, "apache")
        await asyncio.sleep(0)
    path = copy / "store" / "config" / "consumerOffset.json"
    text = path.read_text()
    own = re.search(r'"__kourouPoppedFrom":{[^}]*}[^}]*}\s*},\s*', text)
    assert own is not None, text
    path.write_text(text.replace(own.group(), ""))
    async with clocked(copy, clock) as peer:
        assert in_flight(peer).count(TOPIC, GROUP) == 2
        assert offset_of(peer) == 8
        assert await revived(peer, clock) == ["2", "7"]


async def test_a_store_goes_on_under_another_name_with_the_handles_of_the_old_one(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        handles = await take(peer, [0, 1])
    async with clocked(tmp_path, clock, broker_name="broker-b") as peer:
        assert (await ack(peer, handles[0])).code == 0
        assert (await ack(peer, handles[0])).code == 0
        assert await revived(peer, clock) == ["1"]


async def test_the_progress_of_the_revive_queues_lies_behind_what_is_done(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 1)
        await take(peer, [0])
        clock.advance(INVISIBLE_MS - 500)
        await until(lambda: len(stored(peer, REVIVE, 3)) == 1)
        await settle(0.2)
    async with clocked(tmp_path, clock) as peer:
        # A slow machine takes longer to start again than the time that is left.
        assert in_flight(peer).count(TOPIC, GROUP) == 1 or bodies(peer) == ["0"]
        clock.advance(1_000)
        await until(lambda: bodies(peer) == ["0"])
        await settle()
    async with clocked(tmp_path, clock) as peer:
        offsets = peer.controller.services.offsets
        assert offsets.query("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 3) == len(stored(peer, REVIVE, 3)) - 1
        clock.advance(INVISIBLE_MS)
        await settle()
        assert bodies(peer, RETRY) == ["0"]
