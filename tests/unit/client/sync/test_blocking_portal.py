"""The portal: calls from plain threads to the shared loop, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kourou.client.sync.blocking_portal import BlockingPortal, enter_portal, leave_portal
from kourou.client.sync.sync_client import SyncClient
from kourou.errors import ClientStateError, NoNameServerError


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    entered = enter_portal()
    yield entered
    leave_portal(entered)


def portal_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kourou-client"]


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_a_coroutine_runs_on_the_loop_and_its_result_comes_back(portal: BlockingPortal) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert portal.call(where) == "kourou-client"


def test_a_future_is_waited_for(portal: BlockingPortal) -> None:
    def later() -> asyncio.Future[str]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        loop.call_later(0.01, future.set_result, "done")
        return future

    assert portal.call(later) == "done"


def test_a_future_that_is_done_already_is_taken(portal: BlockingPortal) -> None:
    def ready() -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_result(7)
        return future

    assert portal.call(ready) == 7


def test_a_plain_function_runs_on_the_loop(portal: BlockingPortal) -> None:
    assert portal.do(threading.get_ident) == portal_threads()[0].ident


def test_a_submitted_call_goes_on_without_its_caller(portal: BlockingPortal) -> None:
    async def fails() -> None:
        raise NoNameServerError("nobody there")

    assert portal.submit(lambda: answer(3)).result(10) == 3
    assert isinstance(portal.submit(fails).exception(10), NoNameServerError)
    done = threading.Event()
    portal.post(done.set)
    assert done.wait(10)


def test_errors_of_coroutines_and_of_what_makes_them_reach_the_caller(portal: BlockingPortal) -> None:
    async def fails() -> None:
        raise NoNameServerError("nobody there")

    def cannot() -> asyncio.Future[None]:
        raise ValueError("no such topic")

    with pytest.raises(NoNameServerError, match="nobody there"):
        portal.call(fails)
    with pytest.raises(ValueError, match="no such topic"):
        portal.call(cannot)


def test_an_error_leaves_no_circle_of_frames_behind(portal: BlockingPortal) -> None:
    class Witness:
        pass

    async def fails() -> None:
        raise ValueError("once")

    witness = Witness()
    gone = weakref.ref(witness)

    def caller(held: Witness) -> None:
        with pytest.raises(ValueError):
            portal.call(fails)
        del held

    gc.collect()
    gc.disable()
    try:
        caller(witness)
        del witness
        assert gone() is None
    finally:
        gc.enable()


def test_calls_of_many_threads_all_get_their_own_answer(portal: BlockingPortal) -> None:
    def many(number: int) -> list[int]:
        return [portal.call(lambda: answer(number * 1000 + n)) for n in range(200)]  # noqa: B023

    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(many, range(64)))
    assert found == [[number * 1000 + n for n in range(200)] for number in range(64)]


def test_calls_that_come_together_wake_the_loop_once(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = portal.do(asyncio.get_running_loop)
    wakes: list[object] = []
    is_blocked, go_on = threading.Event(), threading.Event()

    def block() -> None:
        is_blocked.set()
        go_on.wait(10)

    loop.call_soon_threadsafe(block)
    is_blocked.wait(10)
    real = loop.call_soon_threadsafe

    class Loop:
        """The portal's loop, with its wake-ups counted."""

        def call_soon_threadsafe(self, work: object) -> None:
            wakes.append(work)
            real(work)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(loop, name)

    monkeypatch.setattr(portal, "_loop", Loop())
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(portal.call, lambda: answer(1)) for _ in range(8)]
        while len(portal._waiting) < 8:
            assert not any(each.done() for each in answers)
        go_on.set()
        assert [each.result(10) for each in answers] == [1] * 8
    assert len(wakes) == 1


def test_a_call_on_the_loop_itself_is_refused_instead_of_blocking_for_ever(portal: BlockingPortal) -> None:
    async def inside() -> None:
        portal.call(lambda: answer(1))

    with pytest.raises(ClientStateError, match="called on its own event loop"):
        portal.call(inside)


def test_a_call_that_is_cancelled_on_the_loop_ends_with_a_state_error(portal: BlockingPortal) -> None:
    def cancelled() -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        return future

    with pytest.raises(ClientStateError, match="stopped while this call was running"):
        portal.call(cancelled)


def test_the_last_user_ends_the_thread_and_others_wait_no_more() -> None:
    portal = enter_portal()
    assert enter_portal() is portal
    is_waiting = threading.Event()

    async def for_ever() -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(portal.call, for_ever)
        is_waiting.wait(10)
        leave_portal(portal)
        assert portal_threads()
        leave_portal(portal)
        with pytest.raises(ClientStateError, match="stopped"):
            waiting.result(10)
    assert not portal_threads()
    with pytest.raises(ClientStateError, match="is stopped"):
        portal.call(lambda: answer(1))


def test_a_portal_whose_thread_died_is_replaced() -> None:
    portal = enter_portal()

    async def end() -> None:
        portal._stopping.set()

    portal.call(end)
    portal._thread.join(10)
    with pytest.raises(ClientStateError):
        portal.call(lambda: answer(1))
    fresh = enter_portal()
    assert fresh is not portal
    leave_portal(portal)
    assert fresh.call(lambda: answer(3)) == 3
    leave_portal(fresh)
    assert not portal_threads()


def test_ctrl_c_leaves_the_wait_at_once_and_cancels_the_call(portal: BlockingPortal) -> None:
    is_cancelled = threading.Event()

    async def for_ever() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        portal.call(for_ever)
    assert is_cancelled.wait(10)
    assert portal.call(lambda: answer(5)) == 5


# -- a client on it ------------------------------------------------------------------------------


class Idle:
    """An async client that does nothing but live."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.lives: list[str] = []
        self._task: asyncio.Task[bool] | None = None

    async def start(self) -> None:
        if self.fails:
            raise NoNameServerError("nobody there")
        self.lives.append("start")
        self._task = asyncio.ensure_future(asyncio.Event().wait())

    async def stop(self) -> None:
        self.lives.append("stop")
        assert self._task is not None
        self._task.cancel()

    async def work(self) -> int:
        return 1


class PlainIdle(SyncClient[Idle]):
    """Its twin."""

    def work(self) -> int:
        return self._call(self._client.work)


def test_a_client_lives_from_start_to_stop() -> None:
    idle = Idle()
    with PlainIdle(idle) as client:
        assert client.work() == 1
        with pytest.raises(ClientStateError, match="started before"):
            client.start()
    client.stop()
    assert idle.lives == ["start", "stop"]
    with pytest.raises(ClientStateError, match="is stopped"):
        client.work()
    with pytest.raises(ClientStateError, match="not started"):
        PlainIdle(Idle()).work()


def test_before_its_start_a_client_does_only_what_waits_for_nothing() -> None:
    class Early(PlainIdle):
        def now(self) -> int:
            return self._call_early(self._client.work)

        def later(self) -> int:
            return self._call_early(lambda: answer(1))

    client = Early(Idle())
    assert client.now() == 1
    with pytest.raises(ClientStateError, match="not started"):
        client.later()
    with client:
        assert (client.now(), client.later()) == (1, 1)


def test_a_client_that_cannot_start_leaves_no_thread() -> None:
    with pytest.raises(NoNameServerError):
        PlainIdle(Idle(fails=True)).start()
    assert not portal_threads()


def test_a_hundred_starts_and_stops_leave_no_thread_and_no_file() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with PlainIdle(Idle()):
        pass
    before = open_files()
    for _ in range(100):
        with PlainIdle(Idle()) as client:
            client.work()
    assert not portal_threads()
    assert open_files() == before


def test_clients_of_many_threads_share_one_loop() -> None:
    barrier = threading.Barrier(8)

    def live(_: int) -> str | None:
        with PlainIdle(Idle()) as client:
            barrier.wait(10)
            threads = portal_threads()
            assert client.work() == 1
            barrier.wait(10)
            return threads[0].name if len(threads) == 1 else None

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(live, range(8))) == {"kourou-client"}
    assert not portal_threads()
