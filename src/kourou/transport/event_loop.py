"""The event loop of servers and clients where the choice is ours, and its end in daemon threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_PARK_S: Final = 1.0

# Loops that run in daemon threads, by thread.
_loops: Final[dict[threading.Thread, asyncio.AbstractEventLoop]] = {}
_is_over = threading.Event()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def park_at_exit(thread: threading.Thread, loop: asyncio.AbstractEventLoop) -> None:
    """Stop the loop of a daemon thread at the end of the program, if it still runs then.

    A loop that continued would call into a finalised interpreter and crash the process.
    """
    for other in [other for other in _loops if not other.is_alive()]:
        _loops.pop(other, None)
    _loops[thread] = loop


def park_all() -> None:
    """Stop them at the end of the program. Called by the package's `atexit` function."""
    _is_over.set()
    deadline = time.monotonic() + _PARK_S
    parked = []
    for thread, loop in list(_loops.items()):
        if thread.is_alive() and not loop.is_closed():
            parked.append(threading.Event())
            with suppress(RuntimeError):  # closed at this moment
                loop.call_soon_threadsafe(_park, parked[-1])
    for one in parked:
        one.wait(max(0.0, deadline - time.monotonic()))


def is_over() -> bool:
    """Whether they are stopped: there will be no more responses."""
    return _is_over.is_set()


def _park(parked: threading.Event) -> None:
    parked.set()
    # For ever. Nothing is cancelled or closed: programs that need that stop their clients.
    threading.Event().wait()


# Threads do not survive a fork.
os.register_at_fork(after_in_child=_loops.clear)
