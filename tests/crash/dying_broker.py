"""dying_broker: a broker that kills itself at a named step of its work with files.

    python -m tests.crash.dying_broker KIND:FILE:NTH:MOMENT --set=key=value ...

KIND is write, sync, create (which may find what an earlier life left) or rename; FILE a part of the path;
NTH counts such changes from the start of the process. MOMENT is `before`, `after`, or for a write `torn`: its
first half is in the file. All that a broker keeps goes through Files, so these are all the steps that a kill
can fall between. `atomic:NAME:NTH:after` is a step of an atomic publish (BrokerHooks.atomic_step).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.broker.controller import BrokerController
from kourou.broker.hooks import BrokerHooks
from kourou.cli.pairs import parse_pairs
from kourou.config import load_broker_config
from kourou.store.disk.files import Files, OpenFile, open_flags
from tests.crash.dying_client import die

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class Death:
    """The step at which to die, and how far it is. Changes come from several threads."""

    def __init__(self, step: str) -> None:
        self._kind, self._part, nth, self._moment = step.split(":")
        self._left = int(nth)
        self._turn = threading.Lock()

    def is_torn(self, path: Path) -> bool:
        """Whether the write to come is the one to be torn."""
        return (
            self._moment == "torn" and self._left == 1 and self._kind == "write" and self._part in str(path)
        )

    def atomic_step(self, name: str) -> None:
        """After every step of an atomic publish."""
        with self.around("atomic", Path(name)):
            pass

    @contextmanager
    def around(self, kind: str, path: Path) -> Iterator[None]:
        """Around every change."""
        with self._turn:
            is_counted = kind == self._kind and self._part in str(path)
            self._left -= is_counted
            is_due = is_counted and self._left == 0
        if is_due and self._moment == "before":
            die()
        yield
        if is_due:
            die()


class DyingFile(OpenFile):
    """An open file of a process that is about to die."""

    __slots__ = ("_death",)

    def __init__(self, path: Path, fd: int, death: Death) -> None:
        super().__init__(path, fd)
        self._death = death

    def sync(self) -> None:
        with self._death.around("sync", self.path):
            super().sync()

    def _write_once(self, fd: int, data: Buffer, position: int) -> int:
        if self._death.is_torn(self.path):
            view = memoryview(data).cast("B")
            data = view[: len(view) // 2]
        with self._death.around("write", self.path):
            return super()._write_once(fd, data, position)

    def _writev_once(self, parts: Sequence[Buffer], position: int) -> int:
        if self._death.is_torn(self.path):
            joined = b"".join(parts)
            parts = [joined[: len(joined) // 2]]
        with self._death.around("write", self.path):
            return super()._writev_once(parts, position)


class DyingFiles(Files):
    """The files of a process that is about to die."""

    __slots__ = ("_death",)

    def __init__(self, death: Death) -> None:
        self._death = death

    def open(
        self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
    ) -> OpenFile:
        flags = open_flags(writable, create, exclusive)
        if not (create or exclusive):
            return DyingFile(path, os.open(path, flags, 0o644), self._death)
        with self._death.around("create", path):
            return DyingFile(path, os.open(path, flags, 0o644), self._death)

    def rename(self, source: Path, target: Path) -> None:
        with self._death.around("rename", target):
            super().rename(source, target)


async def serve(step: str, settings: dict[str, str]) -> None:
    """Serve until death."""
    config, _ = load_broker_config(None, settings, environ=os.environ)
    death = Death(step)
    hooks = BrokerHooks(atomic_step=[death.atomic_step])
    controller = BrokerController(config, files=DyingFiles(death), hooks=hooks)
    await controller.start()
    print(controller.address, flush=True)
    await controller.wait_failed()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("step")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    asyncio.run(serve(given.step, parse_pairs("--set", given.set)))
    sys.exit("the broker ended before it died")


if __name__ == "__main__":
    main()
