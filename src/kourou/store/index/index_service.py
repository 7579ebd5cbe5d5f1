"""IndexService: the index of a store, from keys on the hot path to phy_offsets in a query.

`collect` only remembers; `build` turns what was collected into entries, a batch at a time, and rolls
to a new file when one is full; `flush` makes them durable. Files are named by the local time at which
they were made, `yyyyMMddHHmmssSSS`, and are in order by that.

The index is derived from the CommitLog: what it loses is built again from there. `end_phy_offset` is
the last record in it. A record that is collected a second time is passed over, key by key, so that
recovery may start anywhere before the end. When the index can no longer keep up (its files cannot be
written for long, or synced at all) it stays where it is, says so in every `flush`, and goes on after
the next start. Key texts are not kept: other keys with the same hash come along in answers.
Not here: which keys a record has (dispatch_request.py), the records themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from kourou.errors import StorageError, StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.index.index_entry import HASHED_KEYS, IndexBatch, IndexHeader, IndexLayout
from kourou.store.index.index_file import IndexFile
from kourou.store.index.index_hash import KeyHasher, key_hash
from kourou.store.index.index_walk import KeySearch
from kourou.store.kernel import Kernel
from kourou.store.steps import Steps, run_steps
from kourou.store.store_layout import index_layout
from kourou.wording import counted

_log = logging.getLogger(__name__)

# Records, or keys that are hashed already, built in one go: enough to share what a batch costs, few enough to
# take some 2 ms only.
_BATCH_RECORDS: Final = 2048
# And those kept while the disk takes none: tens of megabytes.
_MAX_PENDING_RECORDS: Final = 200_000
# What one query finds at most (`maxMsgsNumBatch`).
_MAX_FOUND: Final = 64
# A record's properties end at 32,767 bytes: a longer key is in none, and is not even hashed.
_MAX_KEY_CHARACTERS: Final = 32_767
_NAME_LENGTH: Final = 17
_HASHED_BYTES: Final = HASHED_KEYS.itemsize


class FileVerifier(Protocol):
    """Checks a file from before this start (index_verifier.py)."""

    def verify_steps(self, index_file: IndexFile, before: IndexFile | None, /) -> Steps[None]: ...


class IndexService:
    """All IndexFiles of a store. Owned by the store's thread."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        slot_count: int,
        entry_count: int,
        now_ms: Callable[[], int],
        kernel: Kernel | None = None,
    ) -> None:
        self._files = files
        self._folder = folder
        self._layout = IndexLayout(slot_count, entry_count)
        self._now_ms = now_ms
        self._kernel = kernel
        self._hasher = KeyHasher()
        self._index_files: list[IndexFile] = []
        self._pending: list[tuple[str, Sequence[str], int, int]] = []
        self._hashed_keys: list[bytes] = []
        self._hashed_count = 0
        self._build_at = _BATCH_RECORDS
        self._has_new_names = False
        self._failure: StorageError | None = None
        # False when `load` found damage: what lies behind `end_phy_offset` has to be dispatched again,
        # however far the checkpoint says the index went.
        self.is_complete = True
        self.verifier: FileVerifier | None = None

    # -- state -----------------------------------------------------------------------------------

    @property
    def end_phy_offset(self) -> int:
        """Where the last record in the index lies; 0 when there is none, or it is the log's first."""
        return self._index_files[-1].header.end_phy_offset if self._index_files else 0

    @property
    def behind_end_phy_offset(self) -> int:
        """One byte behind where the last record in the index begins; 0 when there is none. Unlike
        `end_phy_offset` it tells an empty index from one with the log's first record."""
        return self.end_phy_offset + 1 if self.end_timestamp else 0

    @property
    def end_timestamp(self) -> int:
        """When the last record in the index was stored; 0 when there is none."""
        return self._index_files[-1].header.end_timestamp if self._index_files else 0

    @property
    def full_end_timestamp(self) -> int:
        """When the last record of the newest full file was stored, if that file is on disk; else 0.

        It is what a checkpoint has as `indexMsgTimestamp`: full files up to it need no check.
        """
        full = [file for file in self._index_files if file.is_full and file.is_flushed]
        return full[-1].header.end_timestamp if full else 0

    @property
    def paths(self) -> list[Path]:
        """The files, oldest first."""
        return [file.path for file in self._index_files]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The phy_offsets of the first and the last record in each file."""
        headers = [file.header for file in self._index_files]
        return [(header.begin_phy_offset, header.end_phy_offset) for header in headers]

    # -- life ------------------------------------------------------------------------------------

    def load(self, clean_exit: bool, index_msg_timestamp: int) -> None:
        """Open the files that are there. After a crash those that need not be whole are checked,
        and cut where they are not; on return that is on disk.

        StoreFormatError when they were written with other sizes.
        """
        try:
            self._load(clean_exit, index_msg_timestamp)
        except BaseException:
            self.close()
            raise

    def _load(self, clean_exit: bool, index_msg_timestamp: int) -> None:
        names = [name for name in self._files.list_names(self._folder) if _is_index_name(name)]
        has_hole = False
        for position, name in enumerate(names):
            try:
                index_file = IndexFile.open(self._files, self._folder / name, self._layout)
            except StoreFormatError:
                if not self._is_cut(name, names):
                    raise
                self._drop(names[position:])
                self._files.sync_folder(self._folder)
                return
            if index_file.is_empty:  # made just before the end: what it was to hold comes again
                self._remove(index_file)
                has_hole = True
                continue
            if has_hole:  # files get their content in order: the empty one has lost it
                index_file.close()
                self._drop(names[position:])
                self._files.sync_folder(self._folder)
                return
            self._index_files.append(index_file)
            is_trusted = clean_exit or (
                index_file.is_full and index_file.header.end_timestamp <= index_msg_timestamp
            )
            if is_trusted and index_file.is_plausible():
                continue
            if index_file.recover():
                index_file.flush()
                index_file.release_slots()
            else:
                self._keep_up_to(index_file, names[position + 1 :])
                return

    def _is_cut(self, name: str, names: Sequence[str]) -> bool:
        """Whether a file of a wrong length was cut short, rather than written with other sizes: others have
        the right length, or the sizes are in the usual ratio, and none in that ratio make up its length."""
        whole_bytes = self._layout.file_bytes
        lengths = {other: self._files.length(self._folder / other) for other in names}
        is_no_length = index_layout(whole_bytes) is not None and index_layout(lengths[name]) is None
        return lengths[name] < whole_bytes and (whole_bytes in lengths.values() or is_no_length)

    def _keep_up_to(self, cut: IndexFile, newer_names: Sequence[str]) -> None:
        """A file was cut: files behind it go too."""
        self._drop(newer_names)
        # While the cut is not on disk the damage is still to be seen, should this be interrupted.
        self._files.sync_folder(self._folder)
        if cut.is_empty:
            self._remove(self._index_files.pop())
        else:
            cut.flush()
            cut.release_slots()

    def _drop(self, names: Sequence[str]) -> None:
        """Remove files behind damage, so that all from there on can be indexed again in the order of
        the log."""
        self.is_complete = False
        _log.error(
            "%s: the index is damaged; records behind %d have to be indexed again, %d newer files go",
            self._folder,
            self.end_phy_offset,
            len(names),
        )
        for name in names:
            self._files.remove(self._folder / name)

    def keep_first(self, count: int) -> None:
        """A file is missing behind the first `count`: what follows has to be indexed again. On disk on
        return; to be called before anything is collected."""
        newer = self._index_files[count:]
        if newer:
            del self._index_files[count:]
            for index_file in newer:
                index_file.close()
            self._drop([index_file.path.name for index_file in newer])
            self._files.sync_folder(self._folder)

    def truncate(self, phy_offset: int) -> None:
        """The log ends at `phy_offset`: take out what lies there and beyond. On disk on return."""
        self._truncate_pending(phy_offset)
        is_cut = False
        while self._index_files and self.end_phy_offset >= phy_offset:
            newest = self._index_files[-1]
            is_cut |= newest.truncate(phy_offset)
            if not newest.is_empty:
                break
            self._remove(self._index_files.pop())
            self._has_new_names = True
        if is_cut:
            self._sync()

    def _truncate_pending(self, phy_offset: int) -> None:
        self._pending = [record for record in self._pending if record[2] < phy_offset]
        keys = np.frombuffer(b"".join(self._hashed_keys), HASHED_KEYS)
        keys = keys[keys["phy_offset"] < phy_offset]
        self._hashed_keys = [keys.tobytes()]
        self._hashed_count = len(keys)

    def _clear_pending(self) -> None:
        self._pending.clear()
        self._hashed_keys.clear()
        self._hashed_count = 0

    def correct_end(self, store_timestamp: int) -> None:
        """The last record was stored at this time; entries that were cut leave it known by the second."""
        if self._index_files and store_timestamp:
            self._index_files[-1].correct_end(store_timestamp)

    def reset(self) -> None:
        """Drop everything: the index is to be built again from the start of the log."""
        self._clear_pending()
        while self._index_files:
            self._remove(self._index_files.pop())
        if self._files.is_folder(self._folder):
            self._files.sync_folder(self._folder)
        self._failure = None
        self.is_complete = True

    def delete_expired(self, min_phy_offset: int) -> int:
        """Remove files whose records are all gone from the log, never the newest; returns how many."""
        return run_steps(self.delete_expired_steps(min_phy_offset))

    def delete_expired_steps(self, min_phy_offset: int) -> Steps[int]:
        """Like `delete_expired`, but interruptible between steps."""
        deleted = 0
        while len(self._index_files) > 1 and self._index_files[0].header.end_phy_offset < min_phy_offset:
            yield from self._delete_first_steps()
            deleted += 1
        return deleted

    def _delete_first_steps(self) -> Steps[None]:
        oldest = self._index_files[0]
        is_removed = False

        def remove() -> None:
            nonlocal is_removed
            self._files.remove(oldest.path)
            is_removed = True

        try:
            yield remove
        finally:
            # Also when the waiter for the step is cancelled: the file is gone all the same.
            if is_removed:
                del self._index_files[0]
                oldest.close()

    def _remove(self, index_file: IndexFile) -> None:
        index_file.close()
        self._files.remove(index_file.path)

    def close(self) -> None:
        """Close the files. What was not flushed may be lost."""
        for index_file in self._index_files:
            index_file.close()
        self._index_files.clear()
        self._clear_pending()

    # -- filling ---------------------------------------------------------------------------------

    def collect(self, topic: str, keys: Sequence[str], phy_offset: int, store_timestamp: int) -> None:
        """Remember the keys of one record, in the order of the log. In memory on return; never raises."""
        self.collect_many([(topic, keys, phy_offset, store_timestamp)])

    def collect_many(
        self, records: Iterable[tuple[str, Sequence[str], int, int]], hashed_keys: Iterable[bytes] = ()
    ) -> None:
        """Remember topic, keys, phy_offset and store_timestamp of many records; and, as rows of HASHED_KEYS,
        the keys of others between them. As `collect`."""
        self._pending += records
        # Also without any of them: what is pending is counted.
        self.collect_hashed(b"".join(hashed_keys))

    def collect_hashed(self, rows: bytes) -> None:
        """Remember keys as rows of HASHED_KEYS. As `collect`."""
        if rows:
            self._hashed_keys.append(rows)
            self._hashed_count += len(rows) // _HASHED_BYTES
        if len(self._pending) + self._hashed_count >= self._build_at:
            self._build_early()

    @property
    def _pending_count(self) -> int:
        """Records, or keys of them, that wait to be indexed."""
        return len(self._pending) + self._hashed_count

    def _build_early(self) -> None:
        # The caller is in the middle of a commit cycle whose records are stored: the index must not
        # stop that. `flush` reports the failure.
        if self._failure is not None:
            self._clear_pending()
            return
        try:
            self.build()
        except OSError as error:
            reason = error.strerror or str(error)
            _log.warning(
                "%s: %s not indexed yet: %s", self._folder, counted(self._pending_count, "record"), reason
            )
            self._build_at = self._pending_count + _BATCH_RECORDS
            if self._build_at > _MAX_PENDING_RECORDS:
                self._give_up(StorageError(f"the index cannot be written: {reason}", self._folder))

    def _give_up(self, failure: StorageError) -> None:
        """Index nothing more: a gap would never be found again."""
        self._failure = failure
        self._clear_pending()
        self._build_at = _BATCH_RECORDS
        _log.error("%s; keys behind %d are found after a restart", failure, self.end_phy_offset)

    def build(self) -> None:
        """Turn what was collected into entries: in the page cache on return, and found by queries.

        After an OSError it is still collected, as far as it is not in the index.
        """
        if self._failure is not None:
            raise StorageError(str(self._failure), self._failure.path)
        if not self._pending_count:
            return
        batch = self._unindexed(self._collected())
        done = 0
        while done < len(batch):
            done += self._file_with_room().append(batch.part(done), self._kernel)
        self._clear_pending()
        self._build_at = _BATCH_RECORDS

    def _collected(self) -> IndexBatch:
        """All that was collected, in the order of the log."""
        if not self._hashed_count:
            return self._hashed()
        hashed = IndexBatch.of_hashed(self._hashed_keys)
        return hashed.merged(self._hashed()) if self._pending else hashed

    def _hashed(self) -> IndexBatch:
        topics, keys, phy_offsets, store_timestamps = zip(*self._pending, strict=True)
        counts = np.fromiter(map(len, keys), np.intp, len(keys))
        return IndexBatch(
            self._hasher.hashes(topics, keys, counts),
            np.repeat(np.array(phy_offsets, np.int64), counts),
            np.repeat(np.array(store_timestamps, np.int64), counts),
        )

    def _unindexed(self, batch: IndexBatch) -> IndexBatch:
        """Leave out what the files have already, up to the keys of the last record in them."""
        end = self.end_phy_offset
        if not self._index_files or not len(batch) or batch.phy_offsets[0] > end:
            return batch
        first, last = np.searchsorted(batch.phy_offsets, [end, end + 1])
        return batch.part(min(int(first) + self._keys_of_last_record(), int(last)))

    def _keys_of_last_record(self) -> int:
        """Two files may share them."""
        count = 0
        for index_file in reversed(self._index_files):
            in_file = index_file.keys_at_end(self.end_phy_offset)
            count += in_file
            if in_file < index_file.header.index_count - 1:
                break
        return count

    def _file_with_room(self) -> IndexFile:
        if self._index_files and not self._index_files[-1].is_full:
            return self._index_files[-1]
        newest = self._index_files[-1] if self._index_files else None
        self._files.make_folder(self._folder)
        name = _next_name(self._now_ms(), newest.path.name if newest else "")
        header = newest.header.following() if newest else IndexHeader()
        self._index_files.append(IndexFile.create(self._files, self._folder / name, self._layout, header))
        self._has_new_names = True
        _log.info("index file %s is new; the one before it ends at %d", name, header.end_phy_offset)
        return self._index_files[-1]

    def flush(self) -> None:
        """Build, and make everything durable.

        OSError: the disk takes nothing at the moment, a later flush may go through. StorageError: the
        index stays where it is until the next start. In both cases it is on disk as of the last flush,
        or further.
        """
        run_steps(self.flush_steps())

    def flush_steps(self) -> Steps[None]:
        """The same in steps; what comes in meanwhile is left to the next flush."""
        self.build()
        yield from self._sync_steps()

    def _sync(self) -> None:
        run_steps(self._sync_steps())

    def _sync_steps(self) -> Steps[None]:
        # Names first, then contents, oldest first: where a file has entries on disk all files before
        # it are there too, with theirs.
        index_files = list(self._index_files)
        if self._has_new_names:
            self._has_new_names = False
            yield from self._sync_names()
        try:
            for index_file in index_files:
                yield from index_file.flush_steps()
                if index_file.is_full and index_file.is_flushed:
                    index_file.release_slots()
        except StorageError as failure:
            self._give_up(failure)
            raise

    def _sync_names(self) -> Steps[None]:
        try:
            yield partial(self._files.sync_folder, self._folder)
            yield partial(self._files.sync_folder, self._folder.parent)
        except BaseException:
            self._has_new_names = True
            raise

    # -- finding ---------------------------------------------------------------------------------

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        """phy_offsets of records stored between the two times under this key, newest first.

        At most 64; times count by the second. What was collected is found, unless it cannot be
        written at the moment: then what is in the files is answered. Of a key that shares its chain with
        more than a million entries the oldest are not found (index_walk.py).
        """
        return run_steps(self.query_steps(topic, key, max_num, begin_ms, end_ms))

    def query_steps(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> Steps[list[int]]:
        """The same in steps; files may be removed meanwhile."""
        if max(len(topic), len(key)) > _MAX_KEY_CHARACTERS:
            return []
        self._build_for_query()
        search = KeySearch(key_hash(topic, key), begin_ms, end_ms, min(max_num, _MAX_FOUND))
        for index_file in self._index_files[::-1]:
            if index_file.is_closed:
                break
            if not index_file.is_verified:
                yield from self._verify_steps(index_file)
            if index_file.overlaps(begin_ms, end_ms):
                yield from index_file.select_steps(search)
            if index_file.header.begin_timestamp < begin_ms or search.is_over:
                break
        return search.found

    def _verify_steps(self, index_file: IndexFile) -> Steps[None]:
        """Have a file checked that is not of this process, once; it may be removed meanwhile."""
        if self.verifier is None:
            return
        number = self._index_files.index(index_file)
        before = self._index_files[number - 1] if number else None
        with index_file.pinned(), before.pinned() if before is not None else nullcontext():
            try:
                yield from self.verifier.verify_steps(index_file, before)
            except FileNotFoundError:  # the log has deleted a file meanwhile: the next query verifies again
                return

    def drop_damaged(self) -> None:
        """Remove the first file that could not be repaired and those after it: the next start indexes their
        records again."""
        for number, index_file in enumerate(self._index_files):
            if index_file.is_damaged:
                self.keep_first(number)
                return

    def _build_for_query(self) -> None:
        if self._failure is not None:
            return
        try:
            self.build()
        except OSError as error:
            _log.warning("%s: a query is answered without the newest records: %s", self._folder, error)


def _is_index_name(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.isascii() and name.isdigit()


def _next_name(now_ms: int, last_name: str) -> str:
    """The local time as a name, and behind `last_name` also when the clock is not."""
    seconds, milliseconds = divmod(now_ms, 1000)
    now = datetime.fromtimestamp(seconds) + timedelta(milliseconds=milliseconds)
    name = _name_at(now)
    return name if name > last_name else f"{int(last_name) + 1:0{_NAME_LENGTH}d}"


def _name_at(time: datetime) -> str:
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"
