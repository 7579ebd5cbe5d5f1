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
from kourou.store.backup.file_copies import (
    copy_file,
    crc_of,
    data_status,
    sync_tree,
    try_link,
    write_file,
)
from kourou.store.backup.manifest import (
    STORE_NAME,
    VERSION,
    BackupFile,
    Manifest,
    load_manifest,
    store_manifest,
)
from kourou.store.check.log_end import ReadCheckpoint, find_log_end, read_checkpoint
from kourou.store.disk.files import Files
from kourou.store.log.log_file import log_file_name
from kourou.store.log.log_reader import LogReader
from kourou.store.queue.queue_snapshot import QueueSnapshot, decode_snapshot
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.recovery.corrupt_ranges import DAMAGES_NAME
from kourou.store.replica.epochs import EPOCH_FILE
from kourou.store.store_folder import make_root
from kourou.store.store_layout import SegmentFile, StoreLayout, find_layout
from kourou.store.timer.timer_checkpoint import decode_timer_checkpoint

Progress = Callable[[int, int], None]

_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.25
_TIMER_CHECK_READS: Final = 10
_SNAPSHOT: Final = "consumequeue.snapshot"
# Copied after the log: the topic of every copied message must be known.
_DEFINITIONS: Final = ("topics.json", "subscriptionGroup.json", "topicQueueMapping.json")
_TIMER_CHECK: Final = "timercheck"
_SINGLE_FILES: Final = (EPOCH_FILE, f"{EPOCH_FILE}.bak", "brokerIdentity", "timerwheel")
_TREES: Final = ("index", "consumequeue_ext", "timerlog")
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


@dataclass(slots=True)
class BackupCounts:
    """How the files of the CommitLog came into a backup."""

    linked: int = 0
    copied: int = 0


def back_up(
    files: Files,
    root: Path,
    target: Path,
    options: BackupOptions,
    now_ms: Callable[[], int],
    pause: Callable[[float], None] = time.sleep,
) -> tuple[Manifest, BackupCounts]:
    """Copy the store in `root` to `target`, a new or empty folder; durable on return.

    StoreFormatError when one of them is not what it should be, StorageError and OSError when a file cannot be
    read or written: then nothing is left in `target`.
    """
    find_layout(files, root, options.log_folders)
    known = {} if options.base is None else _final_files(load_manifest(files, options.base))
    _check_target(files, root, target)
    backup = _Backup(files, root, target, options, known, now_ms, pause)
    make_root(files, target)
    try:
        return backup.run(), backup.counts
    except BaseException:
        files.remove_tree(target / STORE_NAME)
        raise


def _final_files(base: Manifest) -> dict[str, BackupFile]:
    return {file.path: file for file in base.files if file.is_final}


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
        target: Path,
        options: BackupOptions,
        known: dict[str, BackupFile],
        now_ms: Callable[[], int],
        pause: Callable[[float], None],
    ) -> None:
        self._files = files
        self._root = root
        self._target = target
        self._store = target / STORE_NAME
        self._options = options
        self._known = known
        self._now_ms = now_ms
        self._pause = pause
        self._done: dict[str, BackupFile] = {}
        self._left_out: list[str] = []
        self._total_bytes = 0
        self._done_bytes = 0
        self._has_abort = False
        self.counts = BackupCounts()

    def run(self) -> Manifest:
        begun_ms = self._now_ms()
        notes = self._copy_notes_and_derived()
        first, end = self._copy_log()
        self._copy_config(_DEFINITIONS)
        self._write_checkpoint(notes, end)
        if self._has_abort or self._files.exists(self._root / "abort"):
            self._write("abort", b"")
        sync_tree(self._files, self._store)
        self._files.sync_folder(self._target)
        manifest = Manifest(
            version=VERSION,
            program=f"kourou {__version__}",
            store=str(self._root.resolve()),
            begun_ms=begun_ms,
            completed_ms=self._now_ms(),
            min_phy_offset=first,
            end_phy_offset=end,
            files=sorted(self._done.values(), key=lambda file: file.path),
            left_out=sorted(self._left_out),
        )
        store_manifest(self._files, self._target, manifest)
        return manifest

    # -- notes and what is derived ---------------------------------------------------------------

    def _copy_notes_and_derived(self) -> ReadCheckpoint:
        """Copy all but the log; returns the checkpoint as it was before."""
        for attempt in range(_ATTEMPTS):
            self._files.remove_tree(self._store)
            self._done.clear()
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
        layout = find_layout(self._files, self._root, self._options.log_folders)
        self._has_abort = layout.has_abort
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
            self._copy_tree("consumequeue")
            if checkpoint.is_ours:
                checkpoint.logics_physical_offset = 0  # not known without the snapshot
        for name in _SINGLE_FILES:
            if self._files.exists(self._root / name):
                self._copy(self._root / name, name)
        for name in _TREES:
            self._copy_tree(name)
        damages = f"quarantine/{DAMAGES_NAME}"
        if self._files.exists(self._root / damages):
            self._copy(self._root / damages, damages)
        self._left_out += [
            name
            for name in self._files.list_names(self._root)
            if name not in _COPIED | _NOT_COPIED and not name.endswith((".tmp", ".deleted"))
        ]
        return notes

    def _copy_snapshot(self, checkpoint: StoreCheckpoint) -> QueueSnapshot | None:
        if not checkpoint.is_ours or not self._files.exists(self._root / _SNAPSHOT):
            return None
        raw = self._files.read(self._root / _SNAPSHOT)
        snapshot = decode_snapshot(raw)
        if snapshot is not None:
            self._write(_SNAPSHOT, raw)
        return snapshot

    def _copy_queues(self, snapshot: QueueSnapshot) -> None:
        """The units that the snapshot has, and no later ones."""
        for (topic, queue_id), state in snapshot.queues.items():
            for start in range(state.start, state.end, snapshot.file_bytes):
                path = f"consumequeue/{topic}/{queue_id}/{start:020d}"
                self._copy(self._root / path, path, most_bytes=state.end - start)

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
        self._write(name, raw)

    def _copy_tree(self, name: str) -> None:
        for path in _files_below(self._files, self._root / name):
            self._copy(path, str(path.relative_to(self._root)))

    # -- the log ---------------------------------------------------------------------------------

    def _copy_log(self) -> tuple[int, int]:
        """Copy the log; where its first record and its end are."""
        layout = find_layout(self._files, self._root, self._options.log_folders)
        with LogReader(self._files, layout.log_files) as reader:
            end = find_log_end(self._files, layout, reader, read_checkpoint(self._files, layout).checkpoint)
        segments = _row(layout, end.phy_offset)
        self._total_bytes = sum(min(end.phy_offset - file.start, file.length) for file in segments)
        self._done_bytes = 0
        copied: list[str] = []
        first = segments[0].start if segments else end.phy_offset
        for segment in segments:
            name = f"commitlog/{log_file_name(segment.start)}"
            try:
                self._copy_segment(segment, name, end.phy_offset, end.durable_phy_offset)
                copied.append(name)
            except FileNotFoundError:
                if segment is segments[-1]:
                    raise
                # Deleted since, and with it those before: the log begins behind it now.
                for gone in copied:
                    self._files.remove(self._store / gone)
                    del self._done[gone]
                copied.clear()
                first = segment.start + segment.length
        return first, end.phy_offset

    def _copy_segment(self, segment: SegmentFile, name: str, end: int, durable: int) -> None:
        size = min(end - segment.start, segment.length)
        is_final = segment.start + segment.length <= durable
        with self._files.open(segment.path, writable=False) as file:
            status = file.status()
        target = self._place(name)
        known = self._known.get(name)
        if known is not None and (known.inode, known.modified_ns, known.size_bytes) != (
            status.identity[1],
            status.modified_ns,
            size,
        ):
            known = None
        if is_final and self._link(segment.path, target, name if known is not None else None):
            self.counts.linked += 1
            if known is not None:
                crc = known.crc32
                self._count(size)
            else:
                crc = crc_of(self._files, target, size, self._count)
        else:
            self.counts.copied += 1
            crc = copy_file(
                self._files,
                segment.path,
                target,
                size_bytes=size,
                length_bytes=segment.length,
                on_bytes=self._count,
            )
        self._done[name] = BackupFile(
            path=name,
            size_bytes=size,
            length_bytes=segment.length,
            crc32=crc,
            modified_ns=status.modified_ns,
            is_final=is_final,
            inode=status.identity[1],
        )

    def _link(self, original: Path, target: Path, known_name: str | None) -> bool:
        """Link the file of the store, or else the same one in the earlier backup."""
        if not self._options.copies_only and try_link(self._files, original, target):
            return True
        base = self._options.base
        if base is None or known_name is None or not self._files.exists(base / STORE_NAME / known_name):
            return False
        return try_link(self._files, base / STORE_NAME / known_name, target)

    # -- single files ----------------------------------------------------------------------------

    def _write_checkpoint(self, notes: ReadCheckpoint, end_phy_offset: int) -> None:
        if notes.checkpoint.is_ours:
            notes.checkpoint.durable_phy_offset = end_phy_offset
            self._write("checkpoint", notes.checkpoint.encode())
        elif notes.raw is not None:
            self._write("checkpoint", notes.raw)

    def _copy(self, path: Path, name: str, *, most_bytes: int | None = None) -> None:
        status, data_end = data_status(self._files, path)
        size = data_end if most_bytes is None else min(data_end, most_bytes)
        target = self._place(name)
        crc = copy_file(
            self._files,
            path,
            target,
            size_bytes=size,
            length_bytes=status.length_bytes,
            on_bytes=self._count,
        )
        self._add(name, size, status.length_bytes, crc)

    def _write(self, name: str, raw: bytes) -> None:
        self._add(name, len(raw), len(raw), write_file(self._files, self._place(name), raw))

    def _add(self, name: str, size_bytes: int, length_bytes: int, crc: int) -> None:
        self._done[name] = BackupFile(path=name, size_bytes=size_bytes, length_bytes=length_bytes, crc32=crc)

    def _place(self, name: str) -> Path:
        target = self._store / name
        self._files.make_folder(target.parent)
        return target

    def _count(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if self._options.progress is not None and self._total_bytes:
            self._options.progress(min(self._done_bytes, self._total_bytes), self._total_bytes)


def _row(layout: StoreLayout, end_phy_offset: int) -> list[SegmentFile]:
    """The files of the log up to its end; StoreFormatError when one is missing between them."""
    segments = [file for file in layout.log_files if file.start < end_phy_offset]
    for file, following in zip(segments, segments[1:], strict=False):
        if file.start + file.length != following.start:
            raise StoreFormatError(
                following.path, f"the CommitLog has no file from {file.start + file.length} on before it"
            )
    return segments


def _files_below(files: Files, folder: Path) -> Iterator[Path]:
    for name in files.list_names(folder):
        path = folder / name
        if files.is_folder(path):
            yield from _files_below(files, path)
        else:
            yield path
