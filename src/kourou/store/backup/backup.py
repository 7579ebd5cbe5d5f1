"""back_up: copies a store to another folder while its broker runs. Nothing in the store is changed.

The order makes the copy a state that a killed broker could have left: progress files first, then the files
that they describe, the log last. The start after a restore is then the recovery after a kill.

1. The checkpoint, the snapshot of the queues, the progress of timers and consumers.
2. ConsumeQueues, up to the ends in the snapshot: these bytes were synced and do not change. They cannot be
   left to a rebuild: only they have the next offset of queues whose messages have expired, and a rebuild
   would bring deleted topics back. Index and timer files as found; recovery verifies what the checkpoint does
   not cover.
3. The CommitLog up to its last whole record. Files below the durable offset do not change any more and are
   hard-linked where the file system allows; everything else is copied.
4. Topics and groups, after the log, so that every topic with messages is included.
5. The checkpoint with the end of the copied log as its durable offset; `abort` unless the store was closed;
   finally the manifest.

If the broker deletes files meanwhile, the copy starts over. Not here: the way back (restore.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou import __version__
from kourou.errors import StorageError, StoreFormatError
from kourou.store.backup.backup_writer import BackupWriter, Progress
from kourou.store.backup.log_copy import Base, CopiedLog, LogCopy
from kourou.store.backup.manifest import STORE_NAME, VERSION, Manifest, load_manifest, store_manifest
from kourou.store.check.log_end import ReadCheckpoint, read_checkpoint
from kourou.store.disk.file_lock import is_locked
from kourou.store.disk.files import Files
from kourou.store.queue.queue_snapshot import QueueSnapshot, decode_snapshot
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.recovery.corrupt_ranges import DAMAGES_NAME
from kourou.store.replica.epochs import EPOCH_FILE
from kourou.store.replica.orphaned_tail import ORPHANED_FOLDER
from kourou.store.store_folder import make_root
from kourou.store.store_layout import StoreLayout, find_layout
from kourou.store.timer.timer_checkpoint import decode_timer_checkpoint

_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.25
_TIMER_CHECK_READS: Final = 10
_SNAPSHOT: Final = "consumequeue.snapshot"
# Copied after the log: the topic of every copied message must be known.
_DEFINITIONS: Final = ("topics.json", "subscriptionGroup.json", "topicQueueMapping.json")
_TIMER_CHECK: Final = "timercheck"
_SINGLE_FILES: Final = (
    EPOCH_FILE,
    f"{EPOCH_FILE}.bak",
    "brokerIdentity",
    "timerwheel",
    f"quarantine/{DAMAGES_NAME}",
)
_TREES: Final = ("index", "consumequeue_ext", "timerlog", ORPHANED_FOLDER)
_NOT_COPIED: Final = frozenset({"abort", "abort.bak", "lock", "brokerIdentity-temp", "quarantine"})
_COPIED: Final = frozenset(
    {"commitlog", "consumequeue", "config", "checkpoint", _SNAPSHOT, *_SINGLE_FILES, *_TREES}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions:
    """`base` is an earlier backup whose files of the CommitLog are linked again; `copies_only`: no links to
    the store's own files. `progress` gets bytes done and bytes in all."""

    log_folders: Sequence[Path] = ()
    base: Path | None = None
    copies_only: bool = False
    progress: Progress | None = None


def back_up(
    files: Files,
    root: Path,
    target: Path,
    options: BackupOptions,
    now_ms: Callable[[], int],
    pause: Callable[[float], None] = time.sleep,
) -> tuple[Manifest, CopiedLog]:
    """Copy the store in `root` to `target`, a new or empty folder; durable on return.

    StoreFormatError when one of them is not what it should be, StorageError and OSError when a file cannot be
    read or written: then nothing is left in `target`.
    """
    find_layout(files, root, options.log_folders)
    base = None if options.base is None else Base(options.base, load_manifest(files, options.base))
    _check_target(files, root, target)
    begun_ms = now_ms()
    writer = BackupWriter(files, target / STORE_NAME, options.progress)
    log_copy = LogCopy(files, root, options.log_folders, writer, base=base, copies_only=options.copies_only)
    make_root(files, target)
    try:
        copied, left_out = _Backup(files, root, writer, options.log_folders, pause).run(log_copy)
        writer.sync()
        manifest = Manifest(
            version=VERSION,
            program=f"kourou {__version__}",
            store=str(root.resolve()),
            begun_ms=begun_ms,
            completed_ms=now_ms(),
            min_phy_offset=copied.min_phy_offset,
            end_phy_offset=copied.end_phy_offset,
            files=writer.written,
            left_out=left_out,
        )
        store_manifest(files, target, manifest)
    except BaseException:
        writer.start_over()
        raise
    return manifest, copied


def _check_target(files: Files, root: Path, target: Path) -> None:
    if files.exists(target) and not files.is_folder(target):
        raise StoreFormatError(target, "it is a file; give a new or empty folder for the backup")
    inner, outer = target.resolve(), root.resolve()
    if inner == outer or outer in inner.parents:
        raise StoreFormatError(target, "it is part of the store; give a folder elsewhere for the backup")
    names = files.list_names(target)
    if names:
        hint = (
            "remains of an interrupted backup; remove them" if names == [STORE_NAME] else f"it has {names[0]}"
        )
        raise StoreFormatError(target, f"not empty: {hint}; give a new or empty folder for the backup")


class _Backup:
    """One backup."""

    def __init__(
        self,
        files: Files,
        root: Path,
        writer: BackupWriter,
        log_folders: Sequence[Path],
        pause: Callable[[float], None],
    ) -> None:
        self._files = files
        self._root = root
        self._writer = writer
        self._log_folders = log_folders
        self._pause = pause
        self._left_out: list[str] = []
        self._was_open = False

    def run(self, log_copy: LogCopy) -> tuple[CopiedLog, list[str]]:
        """Copy everything; the part of the log that was copied, and the names of what was not."""
        notes = self._copy_notes_and_derived()
        copied = log_copy.run()
        self._copy_config(_DEFINITIONS)
        self._write_checkpoint(notes, copied.end_phy_offset)
        if self._was_open or self._is_open():
            self._writer.write("abort", b"")
        return copied, sorted(self._left_out)

    def _copy_notes_and_derived(self) -> ReadCheckpoint:
        """Copy all but the log; returns the checkpoint as it was before."""
        for attempt in range(_ATTEMPTS):
            self._writer.start_over()
            self._left_out.clear()
            try:
                # At last without the snapshot, in case it lists a file that does not exist.
                return self._try_derived(with_snapshot=attempt < _ATTEMPTS - 1)
            except FileNotFoundError as error:
                missing = error
                self._pause(_PAUSE_SECONDS)
        raise StorageError(
            f"{missing.filename}: removed while the store was copied, {_ATTEMPTS} times", self._root
        ) from missing

    def _try_derived(self, *, with_snapshot: bool) -> ReadCheckpoint:
        layout = find_layout(self._files, self._root, self._log_folders)
        self._was_open = self._is_open()
        notes = read_checkpoint(self._files, layout)
        checkpoint = notes.checkpoint
        snapshot = self._copy_snapshot(checkpoint) if with_snapshot else None
        self._copy_config(
            sorted({name.removesuffix(".bak") for name in layout.config_names} - set(_DEFINITIONS))
        )
        if snapshot is not None:
            self._copy_queues(snapshot)
            checkpoint.logics_physical_offset = snapshot.covered_phy_offset
        else:
            _check_queues_here(layout, checkpoint)
            self._copy_tree("consumequeue")
            if checkpoint.is_ours:
                checkpoint.logics_physical_offset = 0  # not known without the snapshot
        for name in _SINGLE_FILES:
            if self._files.exists(self._root / name):
                self._writer.copy(self._root / name, name)
        for name in _TREES:
            self._copy_tree(name)
        self._left_out += [
            name
            for name in self._files.list_names(self._root)
            if name not in _COPIED | _NOT_COPIED and not name.endswith((".tmp", ".deleted"))
        ]
        return notes

    def _is_open(self) -> bool:
        """Whether a broker has the store open, or was killed. `abort` may be elsewhere."""
        return self._files.exists(self._root / "abort") or is_locked(self._root / "lock") is True

    def _copy_snapshot(self, checkpoint: StoreCheckpoint) -> QueueSnapshot | None:
        if not checkpoint.is_ours or not self._files.exists(self._root / _SNAPSHOT):
            return None
        raw = self._files.read(self._root / _SNAPSHOT)
        snapshot = decode_snapshot(raw)
        if snapshot is not None:
            self._writer.write(_SNAPSHOT, raw)
        return snapshot

    def _copy_queues(self, snapshot: QueueSnapshot) -> None:
        """The units that the snapshot has, and no later ones."""
        for (topic, queue_id), state in snapshot.queues.items():
            for start in range(state.start, state.end, snapshot.file_bytes):
                path = f"consumequeue/{topic}/{queue_id}/{start:020d}"
                self._writer.copy(self._root / path, path, most_bytes=state.end - start)

    def _copy_config(self, names: Sequence[str]) -> None:
        """Tables, each with its `.bak`: between two renames of a running broker only that one is there."""
        for name in names:
            for each in (name, f"{name}.bak"):
                path = self._root / "config" / each
                if self._files.is_folder(path):
                    self._left_out.append(f"config/{each}")
                elif not each.endswith(".tmp"):
                    self._copy_table(path, f"config/{each}")

    def _copy_table(self, path: Path, name: str) -> None:
        for _ in range(_TIMER_CHECK_READS):
            try:
                raw = self._files.read(path)
            except FileNotFoundError:
                return
            found = decode_timer_checkpoint(raw) if path.name == _TIMER_CHECK else None
            if found is None or not found.is_doubtful:
                break  # else the broker was writing it
        self._writer.write(name, raw)

    def _copy_tree(self, name: str) -> None:
        for path in _files_below(self._files, self._root / name):
            self._writer.copy(path, str(path.relative_to(self._root)))

    def _write_checkpoint(self, notes: ReadCheckpoint, end_phy_offset: int) -> None:
        if notes.checkpoint.is_ours:
            notes.checkpoint.durable_phy_offset = end_phy_offset
            self._writer.write("checkpoint", notes.checkpoint.encode())
        elif notes.raw is not None:
            self._writer.write("checkpoint", notes.raw)


def _check_queues_here(layout: StoreLayout, checkpoint: StoreCheckpoint) -> None:
    """StoreFormatError for a store whose queues are elsewhere."""
    if checkpoint.is_ours and checkpoint.logics_physical_offset and not layout.queues:
        raise StoreFormatError(
            layout.queue_root,
            "the ConsumeQueues are missing, or elsewhere (storePathConsumeQueue): a backup without them "
            "would lose queue offsets",
        )


def _files_below(files: Files, folder: Path) -> Iterator[Path]:
    for name in files.list_names(folder):
        path = folder / name
        if files.is_folder(path):
            yield from _files_below(files, path)
        else:
            yield path
