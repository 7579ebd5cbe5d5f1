"""ConsumerOffsetManager: how far each group has consumed, kept in `consumerOffset.json`.

An offset is the next one to consume. Keys are `topic@group`; neither name can hold an `@`.
A commit is in memory on return; the file is written every `flushConsumerOffsetInterval` and at stop,
so that after a crash some messages come again.
Where an overflow policy has moved a group's floor (overflow_floors.py), the group counts as having consumed
up to there: queries return the floor, while the table keeps what was committed.
Not here: which offsets a queue has (store), moving consumers that run (reset_offset.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kourou.broker.tables.config_table import ConfigTable, queue_words
from kourou.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import ConsumerOffsetTable, load_table
from kourou.store.steps import Steps, no_steps

if TYPE_CHECKING:
    from kourou.broker.tables.overflow_floors import OverflowFloors
    from kourou.config.broker import BrokerConfig

_log = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR: Final = "@"

NONE: Final = -1
"""What a query answers where a group has no offset."""

OffsetTable = dict[str, dict[int, int]]


class PopMarks(Protocol):
    """Where the records of pops end, which move offsets in memory: written with the offsets, they tell what
    an older file does not count."""

    def ends(self) -> OffsetTable:
        """By topic and queue id."""
        ...

    def durable_steps(self) -> Steps[None]:
        """Have the records of all pops so far on disk: the offsets must not be there before them. OSError:
        they are not."""
        ...


class ConsumerOffsetManager(ConfigTable):
    """Offsets by `topic@group` and queue id. A pending reset (5.x) rules until the consumer has taken it."""

    def __init__(
        self,
        file: JsonConfigFile,
        config: Callable[[], BrokerConfig],
        now_ms: Callable[[], int],
        floors: OverflowFloors,
    ) -> None:
        super().__init__(file, now_ms)
        self._config = config
        self.floors = floors
        self._commits = 0
        # How far groups have been given messages; ask `_given`.
        self._pull_offsets: OffsetTable = {}
        # Counts what the fast path has answered and is not counted yet (pull/pull_notes.py).
        self.settle_pulls: Callable[[], None] = _nothing
        # Where groups are to be moved at their next pull.
        self.resets: OffsetTable = {}
        self.offset_table: OffsetTable = {}
        # Whether this broker may change offsets; None: always (replication/reign.py).
        self.may_commit: Callable[[], bool] | None = None
        # Where the records of pops end; None: there is no POP.
        self.pop_marks: PopMarks | None = None
        # As loaded or followed. None: the table counts no pops, as there was no file.
        self._popped_from: OffsetTable | None = None
        # Topics by group and groups by topic, for lists; dropped when the table gets or loses a key.
        self._names: tuple[dict[str, list[str]], dict[str, list[str]]] | None = None
        # Called with a topic of which a group has an offset for the first time, or goes back.
        self.on_larger_backlog: Callable[[str], None] = _ignore

    def load(self) -> None:
        stored = self._file.load_as(lambda raw: load_table(raw, ConsumerOffsetTable))
        if stored is not None:
            self.offset_table.update(stored.offset_table)
            self._names = None
            self._popped_from = {
                topic: {int(queue_id): end for queue_id, end in ends.items()}
                for topic, ends in (stored.popped_from or {}).items()
            }
            if stored.data_version is not None:  # 4.9 has none
                self.data_version = stored.data_version

    def snapshot(self) -> ConsumerOffsetTable:
        popped_from = self.current_popped_from()
        return ConsumerOffsetTable(
            _copied(self.offset_table),
            _copied(self._given) or None,
            self.data_version,
            None
            if popped_from is None
            else {
                topic: {str(queue_id): end for queue_id, end in ends.items()}
                for topic, ends in popped_from.items()
            },
        )

    def _steps_before(self) -> Steps[None]:
        is_master = self.pop_marks is not None and not self._config().is_slave
        return self.pop_marks.durable_steps() if self.pop_marks and is_master else no_steps(None)

    def follow(self, wrapper: ConsumerOffsetSerializeWrapper) -> None:
        """Take over a master's offsets; those of groups and topics that it does not have stay."""
        table = self.offset_table
        changed = {key: queues for key, queues in wrapper.offset_table.items() if table.get(key) != queues}
        if changed:
            table.update(changed)
            self._names = None
            self.is_dirty = True
        if wrapper.floors is not None:
            self.floors.follow(wrapper.floors)
        if wrapper.data_version is not None:
            self.data_version = wrapper.data_version
        if (wrapper.popped_from or {}) != self._popped_from:
            self._popped_from = wrapper.popped_from or {}
            self.is_dirty = True

    def cut(self, queue_end: Callable[[str, int], int]) -> None:
        """Take offsets back that lie beyond the end of their queue: a log that has lost its end, or a slave
        that was made master, does not have these messages, and the next ones would be skipped."""
        self.floors.cut(queue_end)
        for key, queues in self.offset_table.items():
            topic = key.partition("@")[0]
            for queue_id, queue_offset in queues.items():
                end = queue_end(topic, queue_id)
                if queue_offset > end:
                    _log.warning(
                        "%s/%d: offset %d is beyond the end of the queue, set to %d",
                        key,
                        queue_id,
                        queue_offset,
                        end,
                    )
                    queues[queue_id] = end
                    self.is_dirty = True

    # -- commits and queries ---------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int, client_host: str) -> None:
        """The group is to go on at `queue_offset`. Not checked: a client may go back. Without effect on a
        deposed master."""
        if self.may_commit is not None and not self.may_commit():
            return
        key = f"{topic}@{group}"
        queues = self.offset_table.get(key)
        if queues is None:
            queues = self.offset_table[key] = {}
            self._names = None
        old = queues.get(queue_id, NONE)
        if queue_offset < old:
            _log.warning("%s moved %s/%d back from %d to %d", client_host, key, queue_id, old, queue_offset)
        queues[queue_id] = queue_offset
        if old == NONE or queue_offset < old:
            self.on_larger_backlog(topic)
        self.is_dirty = True
        self._commits += 1
        if self._commits % self._config().consumer_offset_update_version_step == 0:
            self._next_version()

    def advance(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """At the start: the group has been given what lies below `queue_offset`. False: that is known."""
        queues = self.offset_table.setdefault(f"{topic}@{group}", {})
        if queue_offset <= queues.get(queue_id, NONE):
            return False
        queues[queue_id] = queue_offset
        self._names, self.is_dirty = None, True
        return True

    def popped_from(self, topic: str, queue_id: int) -> int | None:
        """Where the records of pops begin in a queue that the loaded table does not count; None: that is not
        known."""
        if self._popped_from is None:
            return 0
        if not self._popped_from:
            return None
        # A queue that was not there then.
        return self._popped_from.get(topic, {}).get(queue_id, 0)

    @property
    def knows_pops(self) -> bool:
        """Whether what was loaded says which pops it counts. Apache's file does not."""
        return self._popped_from is None or bool(self._popped_from)

    def current_popped_from(self) -> OffsetTable | None:
        """Where the records of pops begin that the table does not count as it is now: a slave's counts what
        its master's did."""
        marks = self.pop_marks
        return self._popped_from if marks is None or self._config().is_slave else marks.ends()

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group goes on; -1 when it has not begun. A pending reset counts."""
        key = f"{topic}@{group}"
        if self.resets and self._config().use_server_side_reset_offset:
            reset = self.resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self.offset_table.get(key)
        committed = NONE if queues is None else queues.get(queue_id, NONE)
        if self.floors.table and (floor := self.floors.floor(group, topic, queue_id)):
            return max(committed, floor)
        return committed

    def query_all(self, group: str, topic: str) -> dict[int, int] | None:
        """The committed offsets by queue id, None for none at all."""
        return self.offset_table.get(f"{topic}@{group}")

    @property
    def _given(self) -> OffsetTable:
        """How far groups have been given messages, for statistics only."""
        self.settle_pulls()
        return self._pull_offsets

    def commit_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The group has been given what lies below `queue_offset`; for statistics only."""
        self.settle_pulls()
        self.record_pulls(group, topic, {queue_id: queue_offset})

    def record_pulls(self, group: str, topic: str, queue_offsets: dict[int, int]) -> None:
        """The same for several queues, by their ids, as part of `settle_pulls`."""
        key = f"{topic}@{group}"
        queues = self._pull_offsets.get(key)
        if queues is None:
            queues = self._pull_offsets[key] = {}
        queues.update(queue_offsets)

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """How far the group has been given messages; where that is not known, what it has committed."""
        queues = self._given.get(f"{topic}@{group}")
        pulled = None if queues is None else queues.get(queue_id)
        return self.query(group, topic, queue_id) if pulled is None else pulled

    # -- topics and groups -----------------------------------------------------------------------

    def topics_of(self, group: str) -> set[str]:
        """The topics that `group` has offsets of."""
        return set(self._found_names()[0].get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets of `topic`."""
        return set(self._found_names()[1].get(topic, ()))

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets of a topic."""
        self.floors.remove_topic(topic)
        self._remove(lambda key: key.partition(TOPIC_GROUP_SEPARATOR)[0] == topic)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget what all groups have of one queue: it starts over at 0, and what comes would count as
        consumed."""
        self.floors.remove_queue(topic, queue_id)
        for table in (self.offset_table, self._given, self.resets):
            for key, queues in table.items():
                if key.partition(TOPIC_GROUP_SEPARATOR)[0] == topic and queue_id in queues:
                    _log.info("offset of %s/%d removed: %d", key, queue_id, queues.pop(queue_id))
                    self.is_dirty = True

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self.floors.remove_group(group)
        self._remove(lambda key: key.partition(TOPIC_GROUP_SEPARATOR)[2] == group)

    def clone(self, src_group: str, dest_group: str, topic: str) -> None:
        """Let `dest_group` go on in `topic` where `src_group` is now."""
        queues = self.offset_table.get(f"{topic}@{src_group}")
        if queues is not None:
            self.offset_table[f"{topic}@{dest_group}"] = dict(queues)
            self._names = None
            self.is_dirty = True
            self.on_larger_backlog(topic)

    def _found_names(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Looking through the table for each group in turn would take a large broker seconds."""
        if self._names is None:
            topics_of: dict[str, list[str]] = {}
            groups_of: dict[str, list[str]] = {}
            for key in self.offset_table:
                topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
                topics_of.setdefault(group, []).append(topic)
                groups_of.setdefault(topic, []).append(group)
            self._names = topics_of, groups_of
        return self._names

    def _remove(self, is_gone: Callable[[str], bool]) -> None:
        for table in (self.offset_table, self._given, self.resets):
            for key in [key for key in table if is_gone(key)]:
                _log.info("offsets of %s removed: %s", key, queue_words(table.pop(key)))
                self.is_dirty = True
        self._names = None

    # -- resets by the server (5.x) --------------------------------------------------------------

    def assign_reset(self, topic: str, group: str, queue_id: int, queue_offset: int) -> None:
        """Have the group's next pull moved to `queue_offset`; committed too, for consumers that are away."""
        if not topic or not group or queue_id < 0 or queue_offset < 0:
            _log.warning("no reset of %s@%s/%d to %d: not an offset", topic, group, queue_id, queue_offset)
            return
        key = f"{topic}@{group}"
        self.resets.setdefault(key, {})[queue_id] = queue_offset
        self.offset_table.setdefault(key, {})[queue_id] = queue_offset
        self.floors.take_back(topic, group, queue_id, queue_offset)
        self.on_larger_backlog(topic)
        self._names = None
        self.is_dirty = True

    def reset_pending(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the group is to be moved to, None for nowhere."""
        if not self.resets:
            return None
        return self.resets.get(f"{topic}@{group}", {}).get(queue_id)

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """As `reset_pending`, and from now on the group counts as moved."""
        if not self.resets:
            return None
        key = f"{topic}@{group}"
        queues = self.resets.get(key)
        reset = None if queues is None else queues.pop(queue_id, None)
        if queues is not None and not queues:
            del self.resets[key]
        return reset


def _ignore(_: str) -> None:
    return None


def _nothing() -> None:
    return None


def _copied(table: OffsetTable) -> OffsetTable:
    return {key: dict(queues) for key, queues in table.items()}
