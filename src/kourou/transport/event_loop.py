"""The event loop that servers and clients run on where the choice is ours, and its end in daemon threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_PARK_S: Final = 1.0

# Those that run in daemon threads, by their threads.
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
    """Have the loop of a daemon thread stand still from the end of the program on, should it still run then.

    One that goes on calls into the interpreter when that is gone, and the process dies of it.
    """
    for other in [other for other in _loops if not other.is_alive()]:
        _loops.pop(other, None)
    _loops[thread] = loop


def park_all() -> None:
    """The program is at its end: have them stand still. Called by the package's own function of `atexit`."""
    _is_over.set()
    deadline = time.monotonic() + _PARK_S
    parked = []
    for thread, loop in list(_loops.items()):
        if thread.is_alive() and not loop.is_closed():
            parked.append(threading.Event())
            with suppress(RuntimeError):  # closed in this moment
                loop.call_soon_threadsafe(_park, parked[-1])
    for one in parked:
        one.wait(max(0.0, deadline - time.monotonic()))


def is_over() -> bool:
    """Whether they stand still: nobody answers any more."""
    return _is_over.is_set()


def _park(parked: threading.Event) -> None:
    parked.set()
    # For ever. Nothing is cancelled or closed: who wanted that has stopped what runs here.
    threading.Event().wait()


# Threads do not go with a fork.
os.register_at_fork(after_in_child=_loops.clear)
