"""Signals that end a program in order, taken while a consumer runs on the main thread's loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals_call(work: Callable[[], object]) -> Iterator[None]:
    """Within it the first SIGTERM or Ctrl-C calls `work`, on the loop; those that follow do what they did
    before, and so do all afterwards. Only in the main thread, where Python hears of signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while taken:
            number, before = taken.popitem()
            asyncio.get_running_loop().remove_signal_handler(number)
            # None: a handler that was not set from Python, and cannot be set back from there.
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def on_signal() -> None:
        restore()
        work()

    try:
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is signal.SIG_IGN:  # as under nohup: whoever started us does not want it
                continue
            try:
                asyncio.get_running_loop().add_signal_handler(number, on_signal)
            except NotImplementedError:  # Windows
                break
            taken[number] = before
        yield
    finally:
        restore()
