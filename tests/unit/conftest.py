"""What makes a unit test one: no server, no connection, no other process, no waiting for a real clock.

A test here that listens, connects, starts a process or sleeps fails, and its failure names the call.
It belongs to `tests/integration`. Datagram sockets are allowed: connected ones only look up a route.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.memory_folder import temporary_folder, tmp_path

__all__ = ["temporary_folder", "tmp_path", "unit_test_guard"]

_PROCESS_EVENTS: Final = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"})
_YIELD_S: Final = 0.001  # up to here a sleep only lets other threads go on
_guard: list[str] | None = None  # what the running unit test did, None outside of unit tests


class NotAUnitTestError(AssertionError):
    """A unit test used the network, another process or the real clock."""


def _refuse(what: str) -> None:
    assert _guard is not None
    frames = traceback.extract_stack()[:-2]
    own = next((frame for frame in reversed(frames) if "/tests/" in frame.filename), frames[-1])
    _guard.append(f"{what} ({own.filename}:{own.lineno})")
    raise NotAUnitTestError(f"a unit test {what}; move it to tests/integration")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _guard is None:
        return
    if event in ("socket.bind", "socket.connect"):
        used, address = arguments
        if used.family in (socket.AF_INET, socket.AF_INET6) and used.type == socket.SOCK_STREAM:
            _refuse(f"called {event} with {address}")
    elif event in _PROCESS_EVENTS:
        _refuse(f"started a process by {event}")
    elif event == "time.sleep" and arguments[0] > _YIELD_S:
        _refuse(f"slept for {arguments[0]} s")


sys.addaudithook(_audit)
_real_sleep: Final = asyncio.sleep


async def _watched_sleep(delay: float, result: Any = None) -> Any:
    """Background loops may begin to sleep, as long as the test ends before they wake up."""
    returned = await _real_sleep(delay, result)
    # Brokers of fixtures that other tests of the process share run in threads of their own.
    if delay > _YIELD_S and _guard is not None and threading.current_thread() is threading.main_thread():
        _refuse(f"slept for {delay} s")
    return returned


async def _no_socket(*_: object, **__: object) -> None:
    if _guard is not None:
        _refuse("opened a socket of uvloop")


@pytest.fixture(autouse=True)
def unit_test_guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that is none, also where the code under test swallowed the refusal."""
    global _guard
    monkeypatch.setattr(asyncio, "sleep", _watched_sleep)
    if "uvloop" in sys.modules:  # its sockets are not audited
        for name in ("create_server", "create_connection"):
            monkeypatch.setattr(sys.modules["uvloop"].Loop, name, _no_socket)
    _guard = []
    yield
    did, _guard = _guard, None
    assert not did, f"not a unit test; move it to tests/integration: {'; '.join(did)}"
