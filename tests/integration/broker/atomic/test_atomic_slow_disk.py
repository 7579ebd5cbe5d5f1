"""Atomic publishes on a disk whose syncs take too long: what is stored and not durable is not confirmed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from kourou.protocol.codes import ResponseCode
from kourou.store.disk.files import Files, OpenFile, open_flags
from tests.e2e.broker.broker_kit import running
from tests.integration.broker.atomic.atomic_kit import (
    Publish,
    bodies,
    create_topics,
    group,
    opened,
    outcome,
    part_of,
    until_over,
    until_stored,
)


class _GatedFile(OpenFile):
    """Syncs when its gate is open."""

    __slots__ = ("_gate",)

    def __init__(self, path: Path, fd: int, gate: threading.Event) -> None:
        super().__init__(path, fd)
        self._gate = gate

    def sync(self) -> None:
        self._gate.wait(10)
        super().sync()


class GatedFiles(Files):
    """Files of a disk that can be stopped."""

    __slots__ = ("gate",)

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def open(
        self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
    ) -> OpenFile:
        return _GatedFile(path, os.open(path, open_flags(writable, create, exclusive), 0o644), self.gate)


async def test_what_is_not_durable_in_time_is_not_confirmed_and_may_be_repeated(tmp_path: Path) -> None:
    files = GatedFiles()
    keys = {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout": 100}
    async with running(tmp_path, files=files, **keys) as a:
        create_topics(a)
        publish = Publish(a, await opened(a), 0)
        files.gate.clear()
        assert (await publish.stage(a, 0, group("T", [b"1"]))).code == ResponseCode.SYSTEM_BUSY
        assert part_of(a)._participant._doubtful == {(publish.id, 0)}
        files.gate.set()
        assert (await publish.stage(a, 0, group("T", [b"1"]))).code == 0
        assert not part_of(a)._participant._doubtful
        files.gate.clear()
        assert (await publish.decide(commit=True)).code == ResponseCode.SYSTEM_BUSY
        assert (await publish.decide(commit=False)).code == ResponseCode.SYSTEM_BUSY
        assert await bodies(a, "T") == []
        files.gate.set()
        assert outcome(await publish.decide(commit=True)) == "committed"
        await until_stored(a, "T", [b"1"])
        await until_over(a)
        assert outcome(await publish.decide(commit=True)) == "committed"
        assert await bodies(a, "T") == [b"1"]
