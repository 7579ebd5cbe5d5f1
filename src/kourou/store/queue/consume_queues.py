"""ConsumeQueues: all queues of a store, by topic and queue_id.

A queue costs some hundred bytes of memory and no descriptor until it is read from disk; its
folder and file are made when its first units are flushed. 50,000 of them are nothing special.

One thread owns them, see consume_queue.py. Durability: units are in memory after `append`, in
the page cache after a flush round, on disk after a round with `sync`; the CommitLog has them
all the same. Not here: dispatching, retention's rules, the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from kourou.errors import StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT_BYTES
from kourou.store.queue.queue_files import QueueFiles, UnitVerifier
from kourou.store.queue.queue_flush import FlushRound
from kourou.store.queue.queue_min_search import MinSearch
from kourou.store.queue.queue_recovery import IsRecord, QueueState
from kourou.store.queue.queue_snapshot import QueueKey, QueueSnapshot, decode_snapshot, encode_snapshot
from kourou.store.steps import Steps, run_steps

_log = logging.getLogger(__name__)

# Two pages of units would be RocketMQ's `flushConsumeQueueLeastPages`; one is enough to make
# a write worth its system calls.
LEAST_FLUSH_BYTES: Final = 4096
# When a whole folder is gone, thousands of lines would say the same.
_MAX_LOGGED: Final = 20
# Searches for the minimum in one step: some ten milliseconds from the page cache.
_SEARCHES_AT_ONCE: Final = 200
# Queues that an ordinary round looks at, and whose state is noted, in one go: some milliseconds.
_LOOKS_AT_ONCE: Final = 5_000
_NO_FOLDER_NAMES: Final = frozenset({"", ".", ".."})


class ConsumeQueues:
    """The queues below `root`, the folder `consumequeue` of a store.

    `rebuild_phy_offset` is set by `load` and `truncate_all`: from there on the CommitLog has to be
    dispatched again, since a queue's files were not what they should have been; None: all is well.
    `problems` says in words what `load` found, `has_snapshot` whether a record of which queues there
    have to be: without it a queue that got lost is not missed. With `read_only` nothing changes on disk.
    `by_topic` is for looking things up, not for changes.
    """

    def __init__(
        self,
        files: Files,
        root: Path,
        file_size_bytes: int,
        open_files: int = 4000,
        *,
        read_only: bool = False,
    ) -> None:
        self._files = QueueFiles(files, root, file_size_bytes, open_files)
        self.refuse_opening = self._files.refuse_opening
        self._read_only = read_only
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._dirty: list[ConsumeQueue] = []
        self._mark_dirty = self._dirty.append  # one for all: a bound method each would be megabytes
        self.rebuild_phy_offset: int | None = None
        self.problems: list[str] = []
        self.has_snapshot = False

    @property
    def files(self) -> QueueFiles:
        """The files that hold the units."""
        return self._files

    def verify_by(self, verifier: UnitVerifier) -> None:
        """Have units from before this start checked when they are read. After recovery, which has to read
        them as they are."""
        self._files.verifier = verifier

    def distrust_all(self) -> None:
        """Have every unit verified before it is read again: the log was written to by something else."""
        for queue in self.items():
            if queue.unflushed_bytes:
                # Only what is in the files is verified.
                try:
                    queue.flush()
                except OSError as error:
                    _log.warning("%s/%d cannot be flushed: %s", queue.topic, queue.queue_id, error)
            queue.distrust(queue.min_queue_offset)

    # -- which there are -------------------------------------------------------------------------

    @property
    def units_per_file(self) -> int:
        """How many messages one file of a queue holds; the configured bytes rounded up to units."""
        return self._files.units_per_file

    def __len__(self) -> int:
        return sum(map(len, self.by_topic.values()))

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when it is not there; nothing is written until it has units to flush."""
        queues = self.by_topic.get(topic)
        if queues is not None:
            queue = queues.get(queue_id)
            if queue is not None:
                return queue
        return self._add(topic, queue_id)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue if it is there."""
        queues = self.by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def topics(self) -> list[str]:
        """The topics that have queues."""
        return list(self.by_topic)

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic, in order."""
        return sorted(self.by_topic.get(topic, ()))

    def items(self) -> Iterator[ConsumeQueue]:
        """Every queue. Queues may be added meanwhile, they come or not."""
        for topic in list(self.by_topic):
            yield from list(self.by_topic.get(topic, {}).values())

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        # The name becomes a folder: one with a slash would lie, and be deleted, elsewhere.
        if topic in _NO_FOLDER_NAMES or "/" in topic or "\0" in topic or queue_id < 0:
            raise StoreFormatError(self._files.root, f"there can be no queue {topic!r}/{queue_id}")
        queue = ConsumeQueue(topic, queue_id, self._files, self._mark_dirty)
        self.by_topic.setdefault(topic, {})[queue_id] = queue
        return queue

    # -- start -----------------------------------------------------------------------------------

    def load(
        self,
        snapshot_ok: bool = False,
        *,
        log_end_phy_offset: int | None = None,
        is_record: IsRecord | None = None,
        is_taken_over: bool = False,
    ) -> None:
        """Find all queues and their ends; what a crash left behind them is removed.

        `snapshot_ok`: the last stop was clean, so the snapshot may say where queues end. It is
        believed if it covers the log up to `log_end_phy_offset` exactly and the files are there.
        `is_taken_over`: another broker, which knows no snapshot, has worked on the files since; it may
        have deleted what the snapshot has.
        `is_record` tells whether the log has a record of this size at this offset; last units for
        which it has none are dropped. StoreFormatError for files of another size than configured.
        After a sudden stop only units that were synced can be believed, since one torn between two
        sectors may look whole: `truncate_all` to where that was, and dispatch the log from there.
        """
        self.by_topic.clear()
        self._dirty.clear()
        self.rebuild_phy_offset = None
        self.problems = []
        if not self._read_only:
            self._files.remove_moved()
        snapshot = None if is_taken_over else self._read_snapshot()
        self.has_snapshot = snapshot is not None
        known = {} if snapshot is None else dict(snapshot.queues)
        self._files.covered_phy_offset = 0 if snapshot is None else snapshot.covered_phy_offset
        trusted = snapshot_ok and snapshot is not None and snapshot.covered_phy_offset == log_end_phy_offset
        doubtful = []
        for topic, queue_id in self._find_queues():
            queue, state = self._add(topic, queue_id), known.pop((topic, queue_id), None)
            if not (trusted and state is not None and self._adopt(queue, state)):
                # All names are checked before the first file is touched: a wrong size changes nothing.
                doubtful.append((queue, self._files.list_starts(topic, queue_id), state))
        for queue, starts, state in doubtful:
            self._recover(queue, starts, state, is_record)
        for (topic, queue_id), state in known.items():
            if state.max_phy_offset >= 0:
                self._rebuild(topic, queue_id, 0, "its files are gone")
        self._log_problems()

    def _find_queues(self) -> Iterator[tuple[str, int]]:
        """Topic and queue_id of every queue on disk."""
        files, root = self._files.files, self._files.root
        for topic in files.list_names(root):
            folder = root / topic
            if not files.is_folder(folder):
                _log.warning("%s is not the folder of a topic; ignored", folder)
                continue
            for name in files.list_names(folder):
                if _is_queue_id(name):
                    yield topic, int(name)
                else:
                    _log.warning("%s is not the folder of a queue; ignored", folder / name)

    def _adopt(self, queue: ConsumeQueue, state: QueueState) -> bool:
        """Believe the snapshot if the files it speaks of are there."""
        if not state.is_sound or state.max_phy_offset < 0:
            return False
        last = self._files.start_of(state.end - 1)
        if self._files.length(queue.topic, queue.queue_id, last) != self._files.file_bytes:
            return False
        expected = list(range(state.start, state.end, self._files.file_bytes))
        if len(expected) > 1 and expected != self._files.list_starts(queue.topic, queue.queue_id):
            return False
        queue.adopt(state)
        return True

    def _recover(
        self, queue: ConsumeQueue, starts: list[int], state: QueueState | None, is_record: IsRecord | None
    ) -> None:
        is_sound = queue.recover(starts, is_record, repair=not self._read_only)
        # What is wrong behind the units that the snapshot knows of was written after it.
        rebuild_phy_offset = max(queue.max_phy_offset, self._files.covered_phy_offset)
        if state is not None and state.max_phy_offset >= 0:
            if queue.first_file_queue_offset > state.min_queue_offset:
                self._start_over(queue)
                return
            if queue.flushed_queue_offset * UNIT_BYTES < state.end:
                is_sound, rebuild_phy_offset = False, queue.max_phy_offset
        if not is_sound:
            reason = f"units from {queue.max_queue_offset} on are gone or wrong"
            self._rebuild(queue.topic, queue.queue_id, rebuild_phy_offset, reason)

    def _start_over(self, queue: ConsumeQueue) -> None:
        # Units only ever grow at the end, so all of them are made anew.
        self._rebuild(queue.topic, queue.queue_id, 0, "its first files are gone")
        if not self._read_only:
            queue.clear()

    def _rebuild(self, topic: str, queue_id: int, phy_offset: int, reason: str) -> None:
        phy_offset = max(0, phy_offset)
        self.problems.append(f"{topic}/{queue_id}: {reason}; to be dispatched again from {phy_offset}")
        if self.rebuild_phy_offset is None or phy_offset < self.rebuild_phy_offset:
            self.rebuild_phy_offset = phy_offset

    def _log_problems(self) -> None:
        for problem in self.problems[:_MAX_LOGGED]:
            _log.warning("%s", problem)
        if len(self.problems) > _MAX_LOGGED:
            _log.warning("and %d more ConsumeQueues like these", len(self.problems) - _MAX_LOGGED)

    @property
    def is_complete(self) -> bool:
        """Whether every queue was found whole; see `rebuild_phy_offset`."""
        return self.rebuild_phy_offset is None

    def _read_snapshot(self) -> QueueSnapshot | None:
        try:
            snapshot = decode_snapshot(self._files.files.read(self._files.snapshot_path))
        except FileNotFoundError:
            return None
        if snapshot is None or snapshot.file_bytes != self._files.file_bytes:
            _log.warning("%s is not whole, or of other files, and ignored", self._files.snapshot_path)
            return None
        return snapshot

    def save_snapshot(self, covered_phy_offset: int) -> None:
        """Write down what the files hold; on disk on return. To be called after a round with `sync`.

        All records below `covered_phy_offset` have to be in the files.
        """
        run_steps(self.snapshot_steps(covered_phy_offset))

    def snapshot_steps(self, covered_phy_offset: int) -> Steps[None]:
        """The same in steps: no queue may be deleted in between."""
        states: list[tuple[str, int, QueueState]] = []
        for looks, queue in enumerate(self.items(), 1):
            # A queue that got its first units after the round has no files that could be missing later.
            if queue.has_files:
                states.append((queue.topic, queue.queue_id, queue.state()))
            if not looks % _LOOKS_AT_ONCE:
                yield _let_others_go
        yield partial(self._write_snapshot, covered_phy_offset, states)
        self._files.covered_phy_offset = covered_phy_offset

    def _write_snapshot(self, covered_phy_offset: int, states: list[tuple[str, int, QueueState]]) -> None:
        self._files.save_snapshot(encode_snapshot(self._files.file_bytes, covered_phy_offset, states))

    def _unexpect(self, queues: Collection[ConsumeQueue]) -> None:
        """These are about to go on purpose: after a crash they are not to be missed."""
        self._amend_snapshot({(queue.topic, queue.queue_id): None for queue in queues})

    def _amend_snapshot(self, starts: Mapping[QueueKey, int | None]) -> None:
        """Have the snapshot say that these queues begin later, or (None) nothing of them."""
        snapshot = self._read_snapshot() if starts else None
        if snapshot is None:
            return
        for key, start in starts.items():
            state = snapshot.queues.pop(key, None)
            if state is not None and start is not None:
                low = max(state.min_queue_offset, start // UNIT_BYTES)
                snapshot.queues[key] = state._replace(start=start, min_queue_offset=low, min_phy_offset=-1)
        left = ((topic, queue_id, state) for (topic, queue_id), state in snapshot.queues.items())
        self._files.save_snapshot(encode_snapshot(snapshot.file_bytes, snapshot.covered_phy_offset, left))

    # -- flushing --------------------------------------------------------------------------------

    def begin_round(self, *, least_bytes: int = LEAST_FLUSH_BYTES) -> FlushRound:
        """A round over all queues with units in memory; tails under `least_bytes` stay for later.

        Only one round at a time. A round counts as covering the log only if `least_bytes` is 0. Others
        look at some thousand queues only, so that tens of thousands of short tails, which they would leave
        alone, do not hold up the owner; the next round goes on with the next.
        """
        looks = _LOOKS_AT_ONCE if least_bytes else len(self._dirty)
        dirty = list(dict.fromkeys(self._dirty[:looks]))
        del self._dirty[:looks]
        return FlushRound(self._files, dirty, self._mark_dirty, least_bytes)

    def flush_round(self, *, least_bytes: int = LEAST_FLUSH_BYTES, sync: bool = False) -> FlushRound:
        """A whole round here and now. Units are in the page cache on return, with `sync` on disk.

        After an OSError the units that were not written are still in memory.
        """
        flush_round = self.begin_round(least_bytes=least_bytes)
        flush_round.run()
        if sync:
            flush_round.sync()
        return flush_round

    @property
    def unflushed_queues(self) -> int:
        """How many queues have units in memory only, about."""
        return len(self._dirty)

    # -- following the log -----------------------------------------------------------------------

    def max_phy_offset(self) -> int:
        """The end of the last record that is in a queue; -1 when there is none."""
        return max((queue.max_phy_offset for queue in self.items()), default=-1)

    def truncate_all(self, phy_offset: int) -> None:
        """The log ends at `phy_offset`: drop units beyond it, on disk too."""
        for queue in self.items():
            if queue.truncate(phy_offset):
                self._rebuild(queue.topic, queue.queue_id, queue.max_phy_offset, "its last units were wrong")

    def correct_min(self, min_phy_offset: int) -> None:
        """The log begins at `min_phy_offset`: so do all queues."""
        run_steps(self.correct_min_steps(min_phy_offset))

    def correct_min_steps(self, min_phy_offset: int) -> Steps[None]:
        """The same in steps: no queue may be deleted in between."""
        queues = list(self.items())
        for first in range(0, len(queues), _SEARCHES_AT_ONCE):
            some = (queue.min_search(min_phy_offset) for queue in queues[first : first + _SEARCHES_AT_ONCE])
            searches = [search for search in some if search is not None]
            if searches:
                yield partial(_run_all, searches)
                for search in searches:
                    search.finish()

    def delete_expired(self, min_phy_offset: int) -> int:
        """`correct_min`, and remove the files that lie wholly below. How many that were."""
        self.correct_min(min_phy_offset)
        expired = self.expired_files()
        run_steps(self.remove_first_steps(expired))
        return sum(len(starts) for _, starts in expired)

    def expired_files(self) -> list[tuple[ConsumeQueue, range]]:
        """The queues with files that lie wholly below their minimum, and where those begin."""
        return [(queue, starts) for queue in self.items() if (starts := queue.expired_files)]

    def remove_first_steps(self, expired: Collection[tuple[ConsumeQueue, range]]) -> Steps[None]:
        """Remove these files, in steps. Gone from disk in the end; no queue may be deleted in between."""
        # First from the snapshot: after a crash they are not to be missed.
        starts = {(queue.topic, queue.queue_id): starts.stop for queue, starts in expired}
        yield partial(self._amend_snapshot, starts)
        for queue, files in expired:
            yield partial(queue.remove_first, files)

    def clean_expired(self, min_phy_offset: int, keep_topics: Collection[str] = ()) -> list[tuple[str, int]]:
        """Delete the queues all of whose messages are gone from the log. Which they were."""
        expired = [
            queue
            for queue in self.items()
            if 0 <= queue.max_phy_offset <= min_phy_offset and queue.topic not in keep_topics
        ]
        self._unexpect(expired)
        for queue in expired:
            self._delete_queue(queue)
        return [(queue.topic, queue.queue_id) for queue in expired]

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove a queue and its files; its next message would be the first again."""
        queue = self.find(topic, queue_id)
        if queue is not None:
            self._unexpect([queue])
            self._delete_queue(queue)

    def _delete_queue(self, queue: ConsumeQueue) -> None:
        del self.by_topic[queue.topic][queue.queue_id]
        queue.destroy()
        if not self.by_topic[queue.topic]:
            del self.by_topic[queue.topic]

    def delete_topic(self, topic: str) -> None:
        """Remove a topic's queues, their files and its folder. On disk on return, all of it or nothing.

        OSError: all is as before, or, if the topic is gone, not on disk yet.
        """
        queues = self.by_topic.get(topic)
        if queues is None:
            return
        self._unexpect(queues.values())
        with self._files.lock:
            self._files.move_away(topic, queues)
            for queue in queues.values():
                queue.retire()
        del self.by_topic[topic]
        self._files.sync_moved()
        self._files.remove_moved()

    def close(self) -> None:
        """Close every file. Units still in memory are given up: flush before."""
        self._files.close()


def _run_all(searches: Iterable[MinSearch]) -> None:
    for search in searches:
        search.run()


def _let_others_go() -> None:
    """A step that does nothing: whatever else the owner has to do comes in between."""


def _is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name
