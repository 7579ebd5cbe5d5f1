"""A wall clock that is set back or ahead, under a running broker and while it is down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.delay_kit import clocked, count_in, pulled, settle
from tests.e2e.broker.test_timers import handle_of, recall
from tests.e2e.broker.test_timers import send as send_timer_message

pytestmark = pytest.mark.e2e

HOUR_MS = 3_600_000
MONTH_MS = 30 * 24 * HOUR_MS
DELAYS = ["TIMER_DELAY_MS\x0130000", "DELAY\x014"]
"""Half a minute, both ways."""


async def send(peer: Peer, delay: str, uniq_key: str) -> None:
    answer = await peer.send(properties=f"UNIQ_KEY\x01{uniq_key}\x02{delay}\x02")
    assert answer.code == 0, answer.remark


async def delivered(peer: Peer, count: int) -> list[str]:
    """The ids of what was delivered, when it is so much and no more."""
    found = [message.properties["UNIQ_KEY"] for message in await pulled(peer, count)]
    await settle()
    assert count_in(peer) == count
    return found


def step(peer: Peer, clock: FakeClock, ms: int) -> None:
    """Set the clock; the broker looks at it several times a second."""
    clock.step(ms)
    peer.controller.services.clock_watch.look()


def steps_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for record in caplog.records if "the clock was set" in (text := record.getMessage())]


@pytest.mark.parametrize(
    ("delay", "step_ms", "words"),
    [
        (DELAYS[0], -HOUR_MS, "back by 1h"),
        (DELAYS[1], MONTH_MS, "ahead by 30d"),
        pytest.param(DELAYS[0], MONTH_MS, "ahead by 30d", marks=pytest.mark.slow),
        pytest.param(DELAYS[1], -HOUR_MS, "back by 1h", marks=pytest.mark.slow),
    ],
)
async def test_delays_are_kept_when_the_clock_is_stepped(
    tmp_path: Path, delay: str, step_ms: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send(peer, delay, "before")
        await settle()
        step(peer, clock, step_ms)
        await send(peer, delay, "after")
        clock.advance(28_000)
        await settle()
        assert count_in(peer) == 0, "not early"
        clock.advance(3_500)
        assert await delivered(peer, 2) == ["before", "after"]
        (line,) = steps_in(caplog)
        assert words in line
        last_step = peer.controller.services.clock_watch.last_step
        assert last_step is not None and abs(last_step.ms - step_ms) < 1_000


@pytest.mark.parametrize("delay", DELAYS)
async def test_delays_are_kept_when_the_clock_is_set_back_while_the_broker_is_down(
    tmp_path: Path, delay: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send(peer, delay, "before")
        await settle()
    clock.step(-HOUR_MS)
    async with clocked(tmp_path, clock) as peer:
        await settle()
        assert count_in(peer) == 0, "not at once"
        await send(peer, delay, "after")
        clock.advance(31_500)
        assert await delivered(peer, 2) == ["before", "after"]
        assert len(steps_in(caplog)) == 1
        assert "at least 1h" in steps_in(caplog)[0] or "at least 59m" in steps_in(caplog)[0]


@pytest.mark.parametrize("is_down", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_nothing_is_lost_when_the_clock_was_a_month_ahead_for_a_while(
    tmp_path: Path, is_down: bool
) -> None:
    """With restarts in between: each finds the files of a time that is far from its own."""
    clock = FakeClock()
    sent = []

    async def send_both(peer: Peer) -> None:
        for delay in DELAYS:
            sent.append(f"{len(sent)}")
            await send(peer, delay, sent[-1])
        await settle()

    for step_ms in (MONTH_MS, -MONTH_MS):
        async with clocked(tmp_path, clock) as peer:
            await send_both(peer)
            if not is_down:
                step(peer, clock, step_ms)
                await send_both(peer)
        if is_down:
            clock.step(step_ms)
    async with clocked(tmp_path, clock) as peer:
        await send_both(peer)
        for _ in range(3):
            clock.advance(31_000)
            await settle()
        assert sorted(await delivered(peer, len(sent)), key=int) == sent


async def test_the_wheel_goes_by_the_clock_again_when_nothing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.broker.delay.timer_service._REJOIN_S", 0.0)
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        timers = peer.controller.services.timers
        assert timers is not None
        await send(peer, DELAYS[0], "A")
        await settle()
        step(peer, clock, -HOUR_MS)
        await settle()
        assert timers.read_ms > clock(), "while something waits the wheel keeps its time"
        clock.advance(31_500)
        assert await delivered(peer, 1) == ["A"]
        async with asyncio.timeout(10):
            while timers.read_ms > clock():  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(0.01)
        assert timers.read_ms > clock() - 60_000
        await send(peer, DELAYS[0], "B")
        await settle()
    async with clocked(tmp_path, clock) as peer:
        clock.advance(31_500)
        assert await delivered(peer, 2) == ["A", "B"]


@pytest.mark.parametrize("step_ms", [-HOUR_MS, pytest.param(HOUR_MS // 240, marks=pytest.mark.slow)])
async def test_a_message_is_recalled_after_the_clock_was_stepped(tmp_path: Path, step_ms: int) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        handle = handle_of(await send_timer_message(peer, "TIMER_DELAY_SEC\x0130", "recalled"))
        await send_timer_message(peer, "TIMER_DELAY_SEC\x0130", "kept")
        await settle()
        step(peer, clock, step_ms)
        assert (await recall(peer, handle)).code == 0
        await settle()
    async with clocked(tmp_path, clock) as peer:
        timers = peer.controller.services.timers
        assert timers is not None and timers.damage_count == 0
        clock.advance(31_500)
        assert await delivered(peer, 1) == ["kept"]


async def test_a_broker_that_was_down_for_a_month_delivers_what_was_due(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send(peer, DELAYS[0], "A")
        await settle()
    clock.advance(MONTH_MS)
    async with clocked(tmp_path, clock) as peer:
        assert await delivered(peer, 1) == ["A"]
