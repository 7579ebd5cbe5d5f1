"""With several cores old reads get a share of the time while messages are put, and all of it otherwise."""

from __future__ import annotations

import asyncio

import pytest

from kourou.broker.pull import cold_pulls, cold_read_share
from kourou.broker.pull.cold_pulls import ColdReadThrottle
from kourou.broker.pull.cold_read_share import (
    IDLE_ITERATION_S,
    IDLE_ITERATIONS,
    MAX_CREDIT_S,
    MAX_DEBT_S,
    MAX_READS,
    SHARE,
    WRITE_S,
    ColdReadShare,
    make_cold_reads,
)

BUSY_S = 1e-3
READ_S = 1e-4
MANY = 1_000


class Kit:
    """A share, the log that grows, and a clock that a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cold_pulls, "SENDING_S", 60.0)
        monkeypatch.setattr(cold_read_share, "TICK_S", 0.0)
        self.now_s = 0.0
        self.written = 0
        self.share = ColdReadShare(lambda: self.written, clock=lambda: self.now_s)

    def read_nowait(self) -> bool:
        """A read, if it may go on."""
        if not self.share.take_nowait():
            return False
        self.now_s += READ_S
        self.share.spend(1)
        return True

    def read_all(self) -> int:
        """As many reads as may go on now."""
        reads = 0
        while reads < MANY and self.read_nowait():
            reads += 1
        return reads

    def overspend(self) -> None:
        """A read takes more than there is for a while."""
        self.share.resume()
        self.now_s += 2 * MAX_DEBT_S
        self.share.spend(1)

    async def read(self) -> None:
        """A read that waits."""
        await self.share.wait()
        self.now_s += READ_S
        self.share.spend(1)

    async def iterate(self, seconds: float) -> None:
        """An iteration in which the loop did something for so long."""
        self.now_s += seconds
        for _ in range(2):  # a probe, and the tick behind it
            await asyncio.sleep(0)


@pytest.fixture
async def kit(monkeypatch: pytest.MonkeyPatch) -> Kit:
    return Kit(monkeypatch)


async def test_without_sends_no_read_waits(kit: Kit) -> None:
    assert kit.read_all() == MANY
    await asyncio.wait_for(kit.share.wait(), 1)


async def test_beside_sends_reads_get_their_share_of_the_time(kit: Kit) -> None:
    kit.written, reads = 1, 0
    for _ in range(1_000):
        kit.now_s += BUSY_S
        reads += kit.read_all()
    assert reads * READ_S == pytest.approx(SHARE * kit.now_s, rel=0.02)


async def test_reads_that_wait_get_their_share_of_the_time(kit: Kit) -> None:
    kit.written, reads = 1, 0

    async def consume() -> None:
        nonlocal reads
        while True:
            await kit.read()
            reads += 1

    consumers = [asyncio.create_task(consume()) for _ in range(8)]
    for _ in range(1_000):
        await kit.iterate(BUSY_S)
    assert reads * READ_S == pytest.approx(SHARE * kit.now_s, rel=0.02)
    for consumer in consumers:
        consumer.cancel()


async def test_unused_time_is_kept_for_a_moment_only(kit: Kit) -> None:
    kit.written = 1
    kit.now_s += 60.0
    assert kit.read_all() == pytest.approx(MAX_CREDIT_S / (READ_S * (1 - SHARE)), abs=1)


async def test_an_idle_loop_reads(kit: Kit) -> None:
    kit.written = 1
    kit.overspend()
    waiting = asyncio.create_task(kit.share.wait())
    await asyncio.sleep(0)
    for _ in range(IDLE_ITERATIONS):
        assert not waiting.done()
        kit.now_s += IDLE_ITERATION_S / 2
        await asyncio.sleep(0)
    await asyncio.wait_for(waiting, 1)


async def test_reads_go_on_in_order_and_before_others(kit: Kit) -> None:
    kit.written, came = 1, list[int]()
    kit.now_s += BUSY_S
    kit.read_all()

    async def read(number: int) -> None:
        await kit.read()
        came.append(number)

    reads = [asyncio.create_task(read(number)) for number in range(4)]
    await asyncio.sleep(0)
    while len(came) < 4:
        if len(came) < 3:
            assert not kit.share.take_nowait(), "others wait"
        await kit.iterate(BUSY_S)
    assert came == [0, 1, 2, 3]
    await asyncio.gather(*reads)


async def test_all_go_on_when_sends_stop(kit: Kit) -> None:
    kit.written = 1
    kit.overspend()
    reads = [asyncio.create_task(kit.share.wait()) for _ in range(4)]
    reads.append(asyncio.create_task(kit.share.wait()))
    await asyncio.sleep(0)
    reads[1].cancel()
    kit.share._sending_until_s = 0.0
    await kit.iterate(0)
    await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), 1)
    assert [read.cancelled() for read in reads] == [False, True, False, False, False]


async def test_reads_of_the_fast_path_wait_in_the_same_line(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    kit.written, came = 1, list[str]()
    kit.overspend()
    waiting = asyncio.create_task(kit.share.wait())
    waiting.add_done_callback(lambda _: came.append("waited"))
    await asyncio.sleep(0)

    def fail() -> None:
        raise ValueError("on purpose")

    assert kit.share.read_later(fail)
    assert kit.share.read_later(lambda: came.append("later"))
    while len(came) < 2:
        await kit.iterate(MAX_DEBT_S)
    assert sorted(came) == ["later", "waited"] and "on purpose" in caplog.text


async def test_no_more_reads_wait_than_allowed(kit: Kit) -> None:
    kit.written = 1
    kit.overspend()
    assert [kit.share.read_later(lambda: None) for _ in range(MAX_READS + 1)] == [True] * MAX_READS + [False]


async def test_when_the_broker_stops_all_go_on_at_once(kit: Kit) -> None:
    kit.written, came = 1, list[int]()
    kit.overspend()
    waiting = asyncio.create_task(kit.share.wait())
    await asyncio.sleep(0)
    for number in range(3):
        assert kit.share.read_later(lambda number=number: came.append(number))  # type: ignore[misc]
    kit.share.hurry()
    await asyncio.wait_for(waiting, 1)
    assert came == [0, 1, 2]


async def test_what_is_written_is_charged(kit: Kit) -> None:
    kit.written = 1
    kit.now_s += 1.0
    assert kit.share.take_nowait()
    kit.share.spend(int(2 * MAX_CREDIT_S / WRITE_S))
    assert not kit.share.take_nowait()


async def test_a_wait_for_the_disk_costs_no_time(kit: Kit) -> None:
    kit.written = 1
    kit.now_s += BUSY_S
    assert kit.share.take_nowait()
    kit.now_s += 5.0
    kit.share.resume()
    kit.share.spend(1)
    assert kit.share.take_nowait()


async def test_a_read_that_stood_still_does_not_stop_others_for_long(kit: Kit) -> None:
    kit.written = 1
    kit.overspend()
    kit.now_s += 2 * MAX_DEBT_S / SHARE
    assert kit.read_nowait()


async def test_one_core_has_turns() -> None:
    assert type(make_cold_reads(lambda: 0, 1)) is ColdReadThrottle
    assert type(make_cold_reads(lambda: 0, 2)) is ColdReadShare
