"""Blocks of units in memory: read once, never other than what the queue holds now, few."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.queue import unit_blocks
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import UNIT_BYTES
from kourou.store.queue.queue_files import QueueFiles
from kourou.store.queue.unit_blocks import BLOCK_UNITS
from tests.unit.store.consume_queue_kit import (
    RECORD_BYTES,
    Unit,
    append,
    can_read_nowait,
    message,
    unpack,
)

UNITS = 4 * BLOCK_UNITS
PER_FILE = 3 * BLOCK_UNITS + 100  # the fourth block lies in two files


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[ConsumeQueues]:
    if not can_read_nowait(tmp_path):
        pytest.skip("this file system does not say what is in memory")
    opened = ConsumeQueues(Files(), tmp_path / "consumequeue", PER_FILE * UNIT_BYTES, open_files=3)
    opened.load()
    yield opened
    opened.close()


@pytest.fixture
def queue(queues: ConsumeQueues) -> ConsumeQueue:
    return filled(queues, 0)


def filled(queues: ConsumeQueues, queue_id: int) -> ConsumeQueue:
    """A queue whose units are in files, which are open."""
    queue = queues.get("orders", queue_id)
    append(queue, UNITS)
    queue.flush()
    for queue_offset in range(0, UNITS, PER_FILE):
        queue.read_units(queue_offset, 1)
    return queue


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Reads of files: from which unit on, and how many."""
    made: list[tuple[int, int]] = []
    read_nowait = QueueFiles.read_nowait

    def spied(files: QueueFiles, topic: str, queue_id: int, position: int, size_bytes: int) -> bytes | None:
        made.append((position // UNIT_BYTES, size_bytes // UNIT_BYTES))
        return read_nowait(files, topic, queue_id, position, size_bytes)

    monkeypatch.setattr(QueueFiles, "read_nowait", spied)
    return made


def read(queue: ConsumeQueue, queue_offset: int, max_units: int = 32) -> list[Unit]:
    raw = queue.read_units_nowait(queue_offset, max_units)
    assert raw is not None
    return unpack(raw)


def messages(first: int, count: int) -> list[Unit]:
    return [message(number) for number in range(first, first + count)]


def test_a_block_is_read_once(queue: ConsumeQueue, reads: list[tuple[int, int]]) -> None:
    for queue_offset in range(0, BLOCK_UNITS, 32):
        assert read(queue, queue_offset) == messages(queue_offset, 32)
    assert reads == [(0, BLOCK_UNITS)]


def test_units_of_two_blocks_and_of_one_in_two_files_are_read_as_they_are(
    queue: ConsumeQueue, reads: list[tuple[int, int]]
) -> None:
    assert read(queue, BLOCK_UNITS - 1) == messages(BLOCK_UNITS - 1, 32)
    assert read(queue, 3 * BLOCK_UNITS) == messages(3 * BLOCK_UNITS, 32)
    assert read(queue, PER_FILE - 3) == messages(PER_FILE - 3, 3), "up to the end of the file"
    assert read(queue, 2 * BLOCK_UNITS - 1, BLOCK_UNITS) == messages(2 * BLOCK_UNITS - 1, BLOCK_UNITS)
    blocks = [(number * BLOCK_UNITS, BLOCK_UNITS) for number in range(3)]
    assert reads == [*blocks[:2], (3 * BLOCK_UNITS, 32), (PER_FILE - 3, 3), blocks[2]]


def test_a_block_that_is_not_full_is_not_kept(queue: ConsumeQueue, reads: list[tuple[int, int]]) -> None:
    append(queue, 40, UNITS)
    queue.flush()
    assert read(queue, UNITS) == messages(UNITS, 32)
    append(queue, BLOCK_UNITS - 40, UNITS + 40)
    assert read(queue, UNITS) == messages(UNITS, 32), "a part of it is not in the file"
    queue.flush()
    assert read(queue, UNITS + 64) == messages(UNITS + 64, 32)
    assert read(queue, UNITS + 96) == messages(UNITS + 96, 32)
    assert reads == [(UNITS, 32), (UNITS, 32), (UNITS, BLOCK_UNITS)]


def test_units_that_were_cut_off_and_others_in_their_place(queue: ConsumeQueue) -> None:
    assert read(queue, 0) == messages(0, 32)
    queue.truncate(20 * RECORD_BYTES)
    assert read(queue, 0)[:20] == messages(0, 20) and queue.max_queue_offset == 20
    for number in range(20, BLOCK_UNITS):
        queue.append(7_000_000 + number * RECORD_BYTES, RECORD_BYTES, 1)
    queue.flush()
    assert read(queue, 0)[:21] == [*messages(0, 20), (7_000_000 + 20 * RECORD_BYTES, RECORD_BYTES, 1)]


@pytest.mark.parametrize("way", ["clear", "destroy", "retire"])
def test_a_queue_that_starts_over(queue: ConsumeQueue, way: str) -> None:
    assert read(queue, 0) == messages(0, 32)
    getattr(queue, way)()
    assert read(queue, 0) == []
    append(queue, BLOCK_UNITS, 5_000)
    assert read(queue, 0) == messages(5_000, 32)


def test_units_whose_records_are_gone_are_gone(queue: ConsumeQueue) -> None:
    assert read(queue, 0) == messages(0, 32)
    queue.correct_min(40 * RECORD_BYTES)
    assert read(queue, 0) == [] and read(queue, 39) == []
    assert read(queue, 40) == messages(40, 32)


def test_a_topic_that_is_deleted_and_made_again(queues: ConsumeQueues, queue: ConsumeQueue) -> None:
    assert read(queue, 0) == messages(0, 32)
    queues.delete_topic("orders")
    again = queues.get("orders", 0)
    append(again, BLOCK_UNITS, 9_000)
    again.flush()
    again.read_units(0, 1)
    assert read(again, 0) == messages(9_000, 32)


def test_few_are_kept(queues: ConsumeQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_blocks, "MAX_BLOCKS", 2)
    blocks = queues._files.blocks
    for queue_id in range(4):
        assert read(filled(queues, queue_id), 0) == messages(0, 32)
        assert len(blocks) == min(queue_id + 1, 2)
