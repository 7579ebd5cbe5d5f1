"""ConfigWriter: tables go to their files by themselves, and a disk that fails is tried again."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.broker.tables import part
from kourou.broker.tables.part import ConfigWriter
from kourou.protocol.bodies import TopicConfig
from kourou.store.config_file import JsonConfigFile
from tests.unit.broker.tables_kit import MemoryBroker, Tables


class WriterBroker(MemoryBroker):
    """Tables whose writer looks all the time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, flush_consumer_offset_interval=1)
        self.metadata, self.progress = (self.topics, self.groups), (self.offsets,)
        self.writer = self.wired(ConfigWriter)


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WriterBroker]:
    monkeypatch.setattr(part, "_LOOK_S", 0)
    monkeypatch.setattr(part, "_AFTER_FAILURE_S", 0)
    made = WriterBroker(tmp_path)
    made.topics.persist()
    yield made
    await made.close()


class WatchedDisk:
    """Wraps JsonConfigFile.store: reports when files are stored, and fails on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_failing = False
        self._told: asyncio.Queue[str] = asyncio.Queue()
        loop, real = asyncio.get_running_loop(), JsonConfigFile.store

        def store(file: JsonConfigFile, data: bytes) -> None:
            try:
                if self.is_failing:
                    raise OSError(errno.EIO, "Input/output error", str(file.path))
                real(file, data)
            finally:
                loop.call_soon_threadsafe(self._told.put_nowait, file.path.name)

        monkeypatch.setattr(JsonConfigFile, "store", store)

    async def wait_tried(self, *names: str) -> None:
        """Wait until each of these was stored, or was to be, from now on."""
        left = set(names)
        async with asyncio.timeout(5):
            while left:
                left.discard(await self._told.get())


@pytest.fixture
async def disk(broker: WriterBroker, monkeypatch: pytest.MonkeyPatch) -> WatchedDisk:
    return WatchedDisk(monkeypatch)


async def test_changes_are_written_without_a_stop(
    broker: WriterBroker, disk: WatchedDisk, tmp_path: Path
) -> None:
    broker.writer.start(broker.tasks)
    broker.topics.update(TopicConfig(topic_name="T"))
    broker.offsets.commit("CG", "T", 0, 7, "")
    await disk.wait_tried("topics.json", "consumerOffset.json")
    stored = Tables(tmp_path).load()
    assert stored.topics.get("T") is not None
    assert stored.offsets.query("CG", "T", 0) == 7


async def test_a_disk_that_fails_is_reported_and_tried_again(
    broker: WriterBroker, disk: WatchedDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk.is_failing = True
    broker.writer.start(broker.tasks)
    broker.topics.update(TopicConfig(topic_name="T"))
    for _ in range(2):
        await disk.wait_tried("topics.json")
    assert "topics.json cannot be written: Input/output error" in caplog.text
    assert Tables(tmp_path).load().topics.get("T") is None
    disk.is_failing = False
    for number in range(1, 3):  # one may have been under way
        broker.topics.update(TopicConfig(topic_name="U", read_queue_nums=number))
        await disk.wait_tried("topics.json")
    assert Tables(tmp_path).load().topics.get("T") is not None


async def test_one_table_that_cannot_be_written_at_a_stop_does_not_keep_the_others(
    broker: WriterBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topics.update(TopicConfig(topic_name="T"))
    broker.offsets.commit("CG", "T", 0, 7, "")
    in_the_way = tmp_path / "config" / "topics.json.tmp"
    in_the_way.mkdir()
    broker.writer.write_all()
    assert "topics.json cannot be written" in caplog.text
    assert broker.topics.is_dirty and not broker.offsets.is_dirty
    in_the_way.rmdir()
    broker.writer.write_all()
    assert Tables(tmp_path).load().topics.get("T") is not None


async def test_offsets_wait_for_one_who_takes_queues_away(broker: WriterBroker, disk: WatchedDisk) -> None:
    async with broker.store_work:
        broker.writer.start(broker.tasks)
        broker.offsets.commit("CG", "T", 0, 7, "")
        for number in range(1, 4):
            broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=number))
            await disk.wait_tried("topics.json")
        assert broker.offsets.is_dirty
    await disk.wait_tried("consumerOffset.json")
