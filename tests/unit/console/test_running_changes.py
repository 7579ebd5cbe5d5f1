"""RunningChanges: one change of a resource at a time, and none is left by a stop."""

from __future__ import annotations

import asyncio

import pytest

from kourou.console.running_changes import RunningChanges


async def test_changes_of_a_resource_wait_for_each_other_and_not_for_others() -> None:
    changes, gate, order = RunningChanges(), asyncio.Event(), []

    async def first() -> None:
        order.append("first began")
        await gate.wait()
        order.append("first ended")

    async def note(text: str) -> None:
        order.append(text)

    held = asyncio.create_task(changes.run("orders", first))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(changes.run("orders", lambda: note("second")))
    await changes.run("billing", lambda: note("other"))
    assert order == ["first began", "other"]
    gate.set()
    await asyncio.gather(held, waiting)
    assert order == ["first began", "other", "first ended", "second"]


async def test_a_change_goes_on_when_its_caller_goes_away_and_a_stop_waits_for_it() -> None:
    changes, gate, ended = RunningChanges(), asyncio.Event(), []

    async def change() -> None:
        await gate.wait()
        ended.append(True)

    caller = asyncio.create_task(changes.run("orders", change))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    stop = asyncio.create_task(changes.stop())
    await asyncio.sleep(0)
    assert not ended and not stop.done()
    gate.set()
    await stop
    assert ended


async def test_a_stop_interrupts_what_does_not_end() -> None:
    changes, interrupted = RunningChanges(), []

    async def change() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.append(True)

    caller = asyncio.create_task(changes.run("orders", change))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await changes.stop(wait_s=0)
    assert interrupted
    with pytest.raises(asyncio.CancelledError):
        await caller
