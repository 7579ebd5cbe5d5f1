"""What processes share that are killed at a step: their journal, and the step itself.

One process of such lives (`Lives`) forks a child for each of them (`live`), and ends well if each was killed.
A journal is a file of words, one line per deed, in the order of the deeds. It stands for what a client
keeps outside of the broker, such as its database: a written line survives any kill.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.crash.killed_broker import environment

_DEATH_S = 60.0


def die() -> None:
    """End this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()  # the signal may take a moment: nothing is done in it


class Journal:
    """Written by any number of processes, each line in one piece."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, *words: object) -> None:
        """Add a line; it survives this process on return."""
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())

    def lines(self) -> Iterator[list[str]]:
        """All lines so far, in words."""
        for line in self._path.read_text().splitlines():
            yield line.split()

    def wait_longer(self, timeout_s: float = 30) -> None:
        """Wait until a line is added."""
        size_bytes, deadline = self._path.stat().st_size, time.monotonic() + timeout_s
        while self._path.stat().st_size == size_bytes:
            assert time.monotonic() < deadline, f"nothing happens in {self._path}"
            time.sleep(0.005)

    def numbers(self, word: str) -> set[int]:
        """The numbers of all lines that begin with `word`."""
        return {int(line[1]) for line in self.lines() if line[0] == word}


class Steps:
    """Dies at the step `die_at`, when it comes there for the nth time; None: never."""

    def __init__(self, die_at: str | None = None, nth: int = 1, seed: int = 0) -> None:
        self._die_at = die_at
        self._left = nth
        self._chance = random.Random(seed)

    async def at(self, step: str, *, within_ms: int = 0) -> None:
        """A step is reached. `within_ms`: what it began goes on meanwhile, and death comes at some moment."""
        if step != self._die_at:
            return
        self._left -= 1
        if self._left:
            return
        if within_ms:
            await asyncio.sleep(self._chance.uniform(0, within_ms / 1000))
        die()


def live(run: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a life in a process of its own; its id."""
    child = os.fork()
    if child:
        return child
    try:
        asyncio.run(run())
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # who comes here was not killed


def wait_killed(child: int, what: str) -> None:
    """Wait for the end of a life, and end this process with an error if it was not killed."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != -signal.SIGKILL:
        sys.exit(f"{what} ended with {code} and was not killed")


def die_at_each(
    steps: Sequence[str], numbers: int, life: Callable[[str, Path, str, int, str], Coroutine[Any, Any, None]]
) -> None:
    """Entry point of a process of producers: one for each step, all at once. Each gets the broker's address,
    the journal, its step, the first of its `numbers` and its seed."""
    address, journal, first, seed = sys.argv[1:]
    children = {}
    for index, step in enumerate(steps):
        begin = int(first) + index * numbers
        children[step] = live(partial(life, address, Path(journal), step, begin, f"{seed} {step}"))
    for step, child in children.items():
        wait_killed(child, f"the producer that dies when {step}")


class Lives:
    """A process of lives; its complaints are in the test's own output. Used as a context manager."""

    def __init__(self, module: str, home: Path, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self._process = subprocess.Popen(command, env=environment(home), start_new_session=True)

    def wait(self) -> None:
        """Wait until each of them was killed."""
        assert self._process.wait(_DEATH_S) == 0

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
