"""StoreLayout: which files a store has, and the sizes it was written with, found from the files alone.

For tools that open any store without its configuration. Files of one kind have one length, so the
length that most of them have is the size; an IndexFile has four times as many entries as slots.
Nothing is opened here. Not here: what is in the files, and whether a size that differs is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kourou.errors import StorageError, StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.index.index_entry import ENTRY_BYTES, HEADER_BYTES, IndexLayout
from kourou.store.index.index_slots import SLOT_BYTES
from kourou.store.queue.cq_unit import UNIT_BYTES

ENTRIES_PER_SLOT: Final = 4
"""`maxIndexNum` : `maxHashSlotNum` of Apache's defaults, and of most changed settings."""

_OFFSET_DIGITS: Final = 20
_INDEX_DIGITS: Final = 17
_STORE_NAMES: Final = frozenset({"commitlog", "consumequeue", "index", "checkpoint", "abort", "lock"})
_OTHER_NAMES: Final = frozenset(
    {
        "abort.bak",
        "batchconsumequeue",
        "brokerIdentity",
        "brokerIdentity-temp",
        "compaction",
        "config",
        "consumequeue.snapshot",
        "consumequeue_ext",
        "epochFileCheckpoint",
        "epochFileCheckpoint.bak",
        "orphaned",
        "quarantine",
        "rocksdbstore",
        "timerlog",
        "timerwheel",
    }
)

QueueKey = tuple[str, int]  # topic, queue_id


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file that is named by the position of its first byte."""

    path: Path
    start: int
    length: int


@dataclass(slots=True)
class QueueFolder:
    """The files of one ConsumeQueue, in order."""

    path: Path
    segments: list[SegmentFile] = field(default_factory=list)


@dataclass(slots=True)
class StoreLayout:
    """What there is. Sizes are None where there is no file to take them from."""

    root: Path
    log_folders: tuple[Path, ...]
    log_files: list[SegmentFile] = field(default_factory=list)
    log_file_bytes: int | None = None
    queues: dict[QueueKey, QueueFolder] = field(default_factory=dict)
    queue_file_bytes: int | None = None
    index_files: list[tuple[Path, int]] = field(default_factory=list)
    index_file_bytes: int | None = None
    batch_topics: frozenset[str] = frozenset()
    config_names: list[str] = field(default_factory=list)
    quarantined: list[Path] = field(default_factory=list)
    orphaned: list[Path] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)
    has_abort: bool = False

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def queue_root(self) -> Path:
        """The folder of all ConsumeQueues."""
        return self.root / "consumequeue"

    def config(self, name: str) -> Path:
        """The path of a file in the folder `config`."""
        return self.root / "config" / name


def find_layout(files: Files, root: Path, log_folders: Sequence[Path] = ()) -> StoreLayout:
    """List the store in `root`; its CommitLog is in `log_folders` if any are given.

    StoreFormatError when there is none, StorageError when its folders cannot be read.
    """
    try:
        _require_store(files, root, log_folders)
        return _list_store(files, root, tuple(log_folders) or (root / "commitlog",))
    except OSError as error:
        path = Path(error.filename) if error.filename else root
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}", path) from error


def stores_in(files: Files, folder: Path) -> list[Path]:
    """The stores that are meant by a folder: the folder itself, or those in it, where `kourou standalone`
    keeps one for each broker."""
    if not files.is_folder(folder) or not _STORE_NAMES.isdisjoint(files.list_names(folder)):
        return [folder]
    inner = [folder / name for name in files.list_names(folder) if files.is_folder(folder / name)]
    return [each for each in inner if not _STORE_NAMES.isdisjoint(files.list_names(each))] or [folder]


def _require_store(files: Files, root: Path, log_folders: Sequence[Path]) -> None:
    if not files.exists(root):
        raise StoreFormatError(root, "there is no such folder")
    if not files.is_folder(root):
        raise StoreFormatError(root, "it is a file; give the folder that holds `commitlog`")
    for folder in log_folders:
        if not files.is_folder(folder):
            raise StoreFormatError(folder, "there is no such folder for the CommitLog")
    names = set(files.list_names(root))
    if log_folders or names & _STORE_NAMES:
        return
    inner = stores_in(files, root)[0]
    hint = f"did you mean {inner}?" if inner != root else "it has no folder `commitlog`"
    raise StoreFormatError(root, f"not a store: {hint}")


def _list_store(files: Files, root: Path, log_folders: tuple[Path, ...]) -> StoreLayout:
    layout = StoreLayout(root, log_folders)
    layout.has_abort = files.exists(root / "abort")
    layout.foreign.extend(_foreign_names(files, root))
    for folder in log_folders:
        layout.log_files.extend(_segments(files, folder, layout.foreign))
    layout.log_files.sort(key=lambda file: file.start)
    layout.log_file_bytes = _usual(file.length for file in layout.log_files if file.length)
    _list_queues(files, layout)
    _list_index(files, layout)
    layout.batch_topics = frozenset(files.list_names(root / "batchconsumequeue"))
    layout.config_names = files.list_names(root / "config")
    layout.quarantined, layout.orphaned = (
        [root / folder / name for name in files.list_names(root / folder)]
        for folder in ("quarantine", "orphaned")
    )
    return layout


def _foreign_names(files: Files, root: Path) -> Iterator[Path]:
    for name in files.list_names(root):
        known = name in _STORE_NAMES or name in _OTHER_NAMES or name.startswith("dledger-")
        if not known and not name.endswith(".tmp"):
            yield root / name


def _segments(files: Files, folder: Path, foreign: list[Path]) -> Iterator[SegmentFile]:
    for name in files.list_names(folder):
        path = folder / name
        if not is_number(name, _OFFSET_DIGITS) or files.is_folder(path):
            foreign.append(path)
            continue
        try:
            length = files.length(path)
        except FileNotFoundError:  # deleted meanwhile by a running broker
            continue
        yield SegmentFile(path, int(name), length)


def is_number(name: str, digits: int) -> bool:
    """Whether a name is a number of so many digits, ASCII ones."""
    return len(name) == digits and name.isascii() and name.isdigit()


def _list_queues(files: Files, layout: StoreLayout) -> None:
    for topic in files.list_names(layout.queue_root):
        topic_folder = layout.queue_root / topic
        if not files.is_folder(topic_folder):
            layout.foreign.append(topic_folder)
            continue
        for name in files.list_names(topic_folder):
            folder = topic_folder / name
            # No leading zero: that would be a second folder of the same queue.
            if name.isascii() and name.isdigit() and str(int(name)) == name and files.is_folder(folder):
                segments = list(_segments(files, folder, layout.foreign))
                layout.queues[topic, int(name)] = QueueFolder(folder, segments)
            else:
                layout.foreign.append(folder)
    lengths = (file.length for queue in layout.queues.values() for file in queue.segments)
    layout.queue_file_bytes = _usual(length for length in lengths if length and length % UNIT_BYTES == 0)


def _list_index(files: Files, layout: StoreLayout) -> None:
    folder = layout.root / "index"
    for name in files.list_names(folder):
        path = folder / name
        if is_number(name, _INDEX_DIGITS) and not files.is_folder(path):
            with suppress(FileNotFoundError):
                layout.index_files.append((path, files.length(path)))
        else:
            layout.foreign.append(path)
    layout.index_file_bytes = _usual(length for _, length in layout.index_files if length)


def _usual(lengths: Iterable[int]) -> int | None:
    """The length that most have; of two equally frequent ones the larger, as files get cut, not longer."""
    counts = Counter(lengths)
    return max(counts, key=lambda length: (counts[length], length)) if counts else None


def index_layout(file_bytes: int, slot_count: int | None = None) -> IndexLayout | None:
    """Slots and entries of an IndexFile of this length, with four entries per slot by default.

    None when no whole numbers of them make up the length.
    """
    rest = file_bytes - HEADER_BYTES
    if slot_count is None:
        slot_count, odd = divmod(rest, SLOT_BYTES + ENTRIES_PER_SLOT * ENTRY_BYTES)
        if odd:
            return None
    entry_count, odd = divmod(rest - slot_count * SLOT_BYTES, ENTRY_BYTES)
    return None if odd or slot_count < 1 or entry_count < 1 else IndexLayout(slot_count, entry_count)
