"""Running one server as a process: event loop, signals, pid file, a stop within a deadline.

Shared by all servers. SIGTERM and SIGINT stop a server, SIGHUP is ignored, as closing a terminal must not
stop a server. A long start is interrupted, too. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from kourou.errors import KourouError
from kourou.freed_memory import keep_freed_memory
from kourou.pidfile import STARTING, pid_file
from kourou.transport.event_loop import loop_factory

_log = logging.getLogger(__name__)

# A commit cycle has about 1 MiB, a bulk pull several; a burst of reads by the disk threads may leave more.
# Frames of more than 4 MiB are rare.
_KEPT_BYTES: Final = 32 * 1024 * 1024
_MAX_KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class StopTimes:
    """How long a stop may take: for responses in flight, and in total before it is cut off."""

    answers_ms: int
    cut_off_ms: int


# A stop takes at most 3 s as seen from outside: half of that for an orderly stop, less than a second to cut
# off the rest, the remainder for closing loop and log.
QUICK_STOP = StopTimes(answers_ms=1_500, cut_off_ms=2_200)
# A store may have much to write; if cut off, it must be recovered at the next start.
STORE_STOP = StopTimes(answers_ms=3_000, cut_off_ms=25_000)


class Server(Protocol):
    """A server that can be run: a name server, a broker."""

    @property
    def address(self) -> str:
        """`host:port` it listens on, once started."""

    async def start(self) -> None: ...

    async def stop(self, timeout_ms: int) -> None:
        """Stop in order; whatever has not ended after that time is cut off."""

    async def wait_failed(self) -> None:
        """Wait for a background task to fail, and raise its error."""


ServerT = TypeVar("ServerT", bound=Server)


@dataclass(frozen=True)
class Service(Generic[ServerT]):
    """One server to run as a process. `make` is called on the running loop."""

    make: Callable[[], ServerT]
    component: str
    on_started: Callable[[ServerT], Awaitable[None]]
    # The folder of the pid file; None for a child of another server, which has its own.
    run_folder: Path | None = None
    stop_times: StopTimes = QUICK_STOP
    # Stop when standard input ends: the parent that holds its other end is gone.
    stops_with_parent: bool = False
    # The name in the lines that report a requested stop; without one, none are printed.
    shown_name: str = ""


def run_server(service: Service[ServerT]) -> None:
    """Serve until a signal. Raises the error of a failed start, or of a later failure."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_descriptor_limit()
    keep_freed_memory(_KEPT_BYTES, _MAX_KEPT_BUFFER_BYTES)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(service))
    except (KourouError, KeyboardInterrupt):
        raise
    except Exception as error:
        _log.exception("%s failed", service.component)
        raise KourouError(f"{service.component} failed: {error!r}; see the log") from error


async def _serve(service: Service[ServerT]) -> None:
    stop_requested = _stop_on_signals()
    if service.stops_with_parent:
        _stop_with_parent(stop_requested)
    server = service.make()
    with ExitStack() as while_starting:
        while_starting.enter_context(_pid_file_of(service, STARTING))
        if not await _started(server, stop_requested):
            return
        _tune_garbage_collector()
        try:
            with _pid_file_of(service, server.address):
                while_starting.close()
                await service.on_started(server)
                await _wait_stop_or_failure(stop_requested, server)
            _print_stop(service, "is stopping...")
        finally:
            await _stop(server, service)
    _print_stop(service, "has stopped.")


def _print_stop(service: Service[ServerT], what: str) -> None:
    if service.shown_name:
        # The reader of a pipe may be gone: the stop goes on.
        with suppress(OSError):
            print(f"{service.shown_name} {what}", flush=True)


async def _started(server: Server, stop_requested: asyncio.Event) -> bool:
    """Start the server; False if a signal arrived first, and the start was rolled back.

    The recovery of a store is completed first. Its progress is saved as it goes, so a second signal loses
    little.
    """
    start = asyncio.create_task(server.start(), name="start")
    stop = asyncio.create_task(stop_requested.wait(), name="wait-stop")
    try:
        await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            _log.info("aborting the start; a second signal ends it at once")
    finally:
        start.cancel()
        stop.cancel()
        await asyncio.gather(start, stop, return_exceptions=True)
    if start.cancelled():
        return False
    start.result()
    return True


def _tune_garbage_collector() -> None:
    """Objects created at the start are permanent: exclude them from garbage collection, and collect rarely.
    A server makes garbage without cycles, and a full collection over tens of thousands of queues takes 10 ms.
    None is done here either: it would be a tenth of the start, for a few hundred objects."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _pid_file_of(service: Service[ServerT], address: str) -> AbstractContextManager[object]:
    if service.run_folder is None:
        return nullcontext()
    return pid_file(service.run_folder, service.component, address)


def _stop_with_parent(requested: asyncio.Event) -> None:
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def readable() -> None:
        if not os.read(stdin, 1024):
            _log.info("the parent process is gone: stopping")
            loop.remove_reader(stdin)
            requested.set()

    loop.add_reader(stdin, readable)


def _stop_on_signals() -> asyncio.Event:
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()

    def request(number: signal.Signals) -> None:
        _log.info("%s: stopping", number.name)
        requested.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, request, each)
    return requested


async def _wait_stop_or_failure(stop_requested: asyncio.Event, server: Server) -> None:
    stop = asyncio.create_task(stop_requested.wait(), name="wait-stop")
    failure = asyncio.create_task(server.wait_failed(), name="wait-failed")
    try:
        await asyncio.wait((stop, failure), return_when=asyncio.FIRST_COMPLETED)
        if failure.done():
            failure.result()
    finally:
        for task in (stop, failure):
            task.cancel()
        await asyncio.gather(stop, failure, return_exceptions=True)


async def _stop(server: Server, service: Service[ServerT]) -> None:
    times = service.stop_times
    try:
        async with asyncio.timeout(times.cut_off_ms / 1000):
            await server.stop(times.answers_ms)
    except TimeoutError:
        raise KourouError(f"{service.component} did not stop within {times.cut_off_ms} ms") from None


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the user's maximum: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        _log.warning("cannot raise the limit of open files above %d: %s", soft, error)
