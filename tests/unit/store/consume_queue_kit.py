"""Small ConsumeQueues for tests: 5 units a file, records of 10 bytes one behind the other."""

from __future__ import annotations

from pathlib import Path

from kourou.store.disk.files import Files
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import UNIT

UNITS_PER_FILE = 5
FILE_BYTES = UNITS_PER_FILE * 20
RECORD_BYTES = 10
BLANK = (0, 0x7FFFFFFF, 0)

Unit = tuple[int, int, int]


def open_queues(
    root: Path, files: Files | None = None, *, load: bool = True, file_bytes: int = FILE_BYTES
) -> ConsumeQueues:
    """The queues of the store at `root`."""
    queues = ConsumeQueues(files or Files(), root / "consumequeue", file_bytes, open_files=3)
    if load:
        queues.load()
    return queues


def can_read_nowait(folder: Path) -> bool:
    """Whether the system says what is in memory: by RWF_NOWAIT or mincore."""
    with Files().open(folder / "probe", create=True) as file:
        file.pwrite(b"in memory", 0)
        return file.pread_nowait(9, 0) is not None


def message(number: int) -> Unit:
    """The unit of the record with this number, all records being in one queue."""
    return number * RECORD_BYTES, RECORD_BYTES, -number


def append(queue: ConsumeQueue, count: int, first: int = 0) -> list[Unit]:
    """Append `count` messages."""
    units = [message(number) for number in range(first, first + count)]
    for unit in units:
        queue.append(*unit)
    queue.next_queue_offset = queue.max_queue_offset  # as the appender leaves it
    return units


def read_all(queue: ConsumeQueue) -> list[Unit]:
    """Every unit from the minimum on, read in as many steps as the borders ask for."""
    units: list[Unit] = []
    while raw := queue.read_units(queue.min_queue_offset + len(units), 1000):
        units += unpack(raw)
    return units


def unpack(raw: bytes) -> list[Unit]:
    """Units as tuples."""
    return list(UNIT.iter_unpack(raw))


def queue_folder(root: Path, topic: str = "orders", queue_id: int = 0) -> Path:
    """Where a queue's files are."""
    return root / "consumequeue" / topic / str(queue_id)


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def tree(root: Path) -> dict[str, bytes]:
    """Every file below `root` and its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
