"""`mqadmin` or `kourou` as a person runs it: in a process of its own, on a pseudo terminal."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence

MQADMIN = "from kourou.cli.mqadmin import main; main()"
KOUROU = "from kourou.cli.main import main; main()"
_LIMIT_S = 30


def run_on_terminal(
    words: Sequence[str],
    is_enough: Callable[[str], bool],
    then: bytes,
    program: str = MQADMIN,
) -> tuple[str, int]:
    """Run it, type `then` when what is shown is enough, wait for its end: what it showed, its exit code."""
    import pty  # Windows has none, and collects these tests too

    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        # The terminal becomes that of the process, so that Control-C on it is a signal to it.
        preexec_fn=lambda: _own_terminal(theirs),
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    try:
        while not is_enough(shown.decode("utf-8", "replace")):
            shown += _read(ours, shown)
        os.write(ours, then)
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := _read(ours, shown):
                shown += piece
        return shown.decode("utf-8", "replace"), process.wait(_LIMIT_S)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _own_terminal(terminal: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def _read(terminal: int, shown: bytes) -> bytes:
    waiting = select.poll()  # select() refuses descriptors above 1023
    waiting.register(terminal, select.POLLIN)
    assert waiting.poll(_LIMIT_S * 1000), f"nothing more came after {shown!r}"
    return os.read(terminal, 4096)
