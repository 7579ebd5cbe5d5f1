"""Running one server as a process: event loop, signals, pid file, an end within a deadline.

The same for every server; what it serves comes in. SIGTERM and SIGINT stop it, SIGHUP is ignored,
because a terminal that closes must not take a server along. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kourou.errors import KourouError
from kourou.pidfile import pid_file

_log = logging.getLogger(__name__)

# A stop takes 3 s at most as seen from outside: half of that for the server to end in order, less than
# a second to cut off what has not, the rest for leaving the loop and the log.
STOP_TIMEOUT_MS = 1_500
CUT_OFF_TIMEOUT_MS = 2_200


class Server(Protocol):
    """What can be run: a name server, a broker."""

    @property
    def address(self) -> str:
        """`host:port` it listens on, once started."""

    async def start(self) -> None:
        """Begin to serve."""

    async def stop(self, timeout_ms: int) -> None:
        """End in order; what has not ended after that time is cut off."""

    async def wait_failed(self) -> None:
        """Raise what a background task died of."""


def run_server(
    make: Callable[[], Server], component: str, run_folder: Path, on_started: Callable[[Server], None]
) -> None:
    """Serve until a signal says stop. `make` is called on the running loop.

    Raises what kept the server from starting, or made it fail later.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_descriptor_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(make, component, run_folder, on_started))
    except (KourouError, KeyboardInterrupt):
        raise
    except Exception as error:
        _log.exception("%s failed", component)
        raise KourouError(f"{component} failed: {error!r}; the log has more") from error


async def _serve(
    make: Callable[[], Server], component: str, run_folder: Path, on_started: Callable[[Server], None]
) -> None:
    stop_requested = _stop_on_signals()
    server = make()
    await server.start()
    try:
        with pid_file(run_folder, component, server.address):
            on_started(server)
            await _wait_stop_or_failure(stop_requested, server)
    finally:
        await _stop(server, component)


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


async def _stop(server: Server, component: str) -> None:
    try:
        async with asyncio.timeout(CUT_OFF_TIMEOUT_MS / 1000):
            await server.stop(STOP_TIMEOUT_MS)
    except TimeoutError:
        raise KourouError(f"{component} did not stop in order within {CUT_OFF_TIMEOUT_MS} ms") from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def raise_descriptor_limit() -> None:
    """Allow as many open files as this user may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        _log.warning("the limit of open files stays at %d: %s", soft, error)
