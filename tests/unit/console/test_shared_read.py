"""SharedRead: one read for many callers, kept for a while, never from before a change."""

from __future__ import annotations

import asyncio

import pytest

from kourou.console.shared_read import SharedRead
from kourou.errors import ConfigError


class _Source:
    """Counts reads; each takes `takes_s` of the clock, and waits for `gate` if there is one."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.takes_s = 0.0
        self.reads = 0
        self.gate: asyncio.Event | None = None

    async def read(self) -> int:
        self.reads += 1
        number, gate = self.reads, self.gate
        if gate is not None:
            await gate.wait()
        self.now_s += self.takes_s
        return number

    def shared(self, keep_s: float = 5.0) -> SharedRead[int]:
        return SharedRead(self.read, keep_s, lambda: self.now_s)


async def test_concurrent_callers_share_a_read_and_later_ones_its_result() -> None:
    source = _Source()
    shared = source.shared()
    assert list(await asyncio.gather(shared.get(), shared.get())) == [1, 1]
    source.now_s = 4.9
    assert await shared.get() == 1
    source.now_s = 5.0
    assert await shared.get() == 2


@pytest.mark.parametrize(("takes_s", "kept_s"), [(0.2, 10.0), (15.0, 30.0)])
async def test_a_slow_read_is_kept_longer_but_not_too_long(takes_s: float, kept_s: float) -> None:
    source = _Source()
    source.takes_s = takes_s
    shared = source.shared()
    await shared.get()
    source.now_s = kept_s - 0.1
    assert await shared.get() == 1
    source.now_s = kept_s
    assert await shared.get() == 2


async def test_a_part_that_is_missing_is_soon_read_again() -> None:
    """A broker that did not answer made the read slow; it may be back."""
    source = _Source()
    source.takes_s = 15.0
    shared = SharedRead(source.read, 5.0, lambda: source.now_s, is_partial=lambda number: number == 1)
    await shared.get()
    source.now_s = 19.9
    assert await shared.get() == 1
    source.now_s = 20.0
    assert await shared.get() == 2


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_read_from_before_a_change_is_not_kept(is_new: bool) -> None:
    source = _Source()
    source.gate = old_gate = asyncio.Event()
    shared = source.shared()
    old = asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    source.gate = None
    if not is_new:
        shared.forget()
    assert await shared.get(is_new=is_new) == 2
    old_gate.set()
    assert await old == 1
    assert await shared.get() == 2


async def test_an_error_is_raised_for_all_and_not_kept() -> None:
    answers: list[int | ConfigError] = [ConfigError("away"), 7]

    async def read() -> int:
        answer = answers.pop(0)
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    shared = SharedRead(read, 5.0)
    results = await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)
    assert [str(result) for result in results] == ["away", "away"]
    assert await shared.get() == 7


async def test_stop_cancels_reads_also_those_from_before_a_change() -> None:
    source = _Source()
    source.gate = asyncio.Event()
    shared = source.shared()
    waiting = [asyncio.create_task(shared.get())]
    await asyncio.sleep(0)
    shared.forget()
    waiting.append(asyncio.create_task(shared.get()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await shared.stop()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
