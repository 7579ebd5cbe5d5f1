"""The end of a client: once, for all who ask, and not undone by one who stops waiting."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kourou.client.core.stop_once import StopOnce, is_handler_of, mark_handlers_of
from kourou.client.push.handler_threads import HandlerThreads


async def test_a_cancelled_stop_leaves_the_end_running_and_the_next_stop_waits_for_it() -> None:
    go_on, ends = asyncio.Event(), list[str]()

    async def end() -> None:
        ends.append("begun")
        await go_on.wait()
        ends.append("over")

    ending = StopOnce("unit")
    assert not ending.is_begun
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ending.wait(end), 0.01)
    again = asyncio.ensure_future(ending.wait(end))
    await asyncio.sleep(0)
    assert ending.is_begun and not again.done()
    go_on.set()
    await again
    await ending.wait(end)
    assert ends == ["begun", "over"]


async def test_all_waiters_get_what_it_raised() -> None:
    async def end() -> None:
        raise OSError("the file is gone")

    ending = StopOnce("unit")
    for _ in range(2):
        with pytest.raises(OSError, match="the file is gone"):
            await ending.wait(end)


async def test_an_end_that_a_handler_begins_is_no_handler() -> None:
    owner, seen = object(), list[bool]()

    async def end() -> None:
        seen.append(is_handler_of(owner))

    async def handler() -> None:
        mark_handlers_of(owner)
        seen.append(is_handler_of(owner))
        await StopOnce("unit").wait(end)

    await asyncio.create_task(handler())
    assert seen == [True, False]
    assert not is_handler_of(owner)


async def test_threads_of_a_consumer_and_what_they_start_on_the_loop_are_its_handlers() -> None:
    threads, others = HandlerThreads("unit", 1), HandlerThreads("others", 1)
    loop = asyncio.get_running_loop()

    async def on_the_loop() -> tuple[bool, bool]:
        return is_handler_of(threads), is_handler_of(others)

    def handler() -> list[tuple[bool, bool]]:
        here = is_handler_of(threads), is_handler_of(others)
        return [here, asyncio.run_coroutine_threadsafe(on_the_loop(), loop).result(10)]

    assert await threads.run(handler) == [(True, False)] * 2
    elsewhere: list[bool] = []
    stranger = threading.Thread(target=lambda: elsewhere.append(is_handler_of(threads)))
    stranger.start()
    stranger.join(10)
    assert elsewhere == [False]
    await threads.stop()
    await others.stop()
