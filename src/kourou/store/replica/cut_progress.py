"""The progress that files of a store record, set back to where its log is cut.

    config/consumerOffset.json   no group is beyond the end of a queue; halves of transactions whose end is
                                 cut off are open again
    config/delayOffset.json      delayed messages whose delivery is cut off are to be delivered again
    config/timercheck            removed: the next start as master enters all timers again, from the log

All of it counts less than before, so that it is also right for a log that was not cut after all. What tables
of a master say replaces it as soon as the store follows one.
The journal of atomic publishes and the op records of transactions are records of the log: nothing of them is
kept elsewhere. Not here: queues, index, producers (log_cut.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.errors import ProtocolError
from kourou.protocol.names import CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from kourou.protocol.op_record import ended_halves
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_prepared_offset
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import ConsumerOffsetTable, NotedDelayOffsetTable, dump_table, load_table
from kourou.store.delay_levels import SCHEDULE_TOPIC, delivered_level
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.timer.timer_checkpoint import remove_timer_checkpoint

if TYPE_CHECKING:
    from kourou.protocol.message import MessageExt
    from kourou.store.disk.files import Files
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.dispatch_request import DispatchRequest
    from kourou.store.queue.consume_queues import ConsumeQueues

_HALVES: Final = f"{RMQ_SYS_TRANS_HALF_TOPIC}@{CID_SYS_RMQ_TRANS}"
_OPS: Final = f"{RMQ_SYS_TRANS_OP_HALF_TOPIC}@{CID_SYS_RMQ_TRANS}"


@dataclass(slots=True)
class TailEffects:
    """What the records of a tail did for others in front of it: the first delayed message of each level that
    was delivered, by its phy_offset, and the queue_offsets of halves whose transactions ended."""

    delivered: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def add(self, record: MessageExt) -> None:
        """Take a record of the tail."""
        level = delivered_level(record)
        if record.topic == RMQ_SYS_TRANS_OP_HALF_TOPIC:
            self.ended.update(ended_halves(record))
        elif level is not None:
            origin = record.prepared_transaction_offset - 1
            self.delivered[level] = min(origin, self.delivered.get(level, origin))


def read_effects(log: CommitLog, scanner: LogScanner, phy_offset: int) -> TailEffects:
    """Read the log from `phy_offset` on."""
    effects = TailEffects()
    for found in _records(scanner, phy_offset, log.max_phy_offset):
        raw = log.read(found.phy_offset, found.size)
        if raw is not None and (found.topic == RMQ_SYS_TRANS_OP_HALF_TOPIC or record_prepared_offset(raw, 0)):
            try:
                effects.add(decode_record(raw))
            except ProtocolError:
                continue  # damaged: its contents are unknown
    return effects


def _records(scanner: LogScanner, phy_offset: int | None, end: int) -> Iterator[DispatchRequest]:
    while phy_offset is not None:
        begin, phy_offset = phy_offset, None
        for found in scanner.records(begin, end):
            if isinstance(found, BadRecord):
                phy_offset = scanner.next_record(found.phy_offset + 1, end)
            else:
                yield found


class ProgressCut:
    """Sets back what the files in `folder` record; the queues are cut already. On disk on return."""

    def __init__(self, files: Files, folder: Path, queues: ConsumeQueues, effects: TailEffects) -> None:
        self._files = files
        self._folder = folder
        self._queues = queues
        self._effects = effects

    def run(self, phy_offset: int) -> None:
        """The log is to end at `phy_offset`. StoreFormatError: a table cannot be read; OSError."""
        self._cut_consumers()
        self._cut_delays(phy_offset)
        remove_timer_checkpoint(self._files, self._folder / "timercheck")

    def _end(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_queue_offset

    # -- consumers and transactions ----------------------------------------------------------------

    def _cut_consumers(self) -> None:
        file = JsonConfigFile(self._files, self._folder / "consumerOffset.json")
        table = file.load_as(lambda raw: load_table(raw, ConsumerOffsetTable))
        if table is None:
            return
        before = dump_table(table)
        for offsets in (table.offset_table, table.pull_offset_table or {}):
            for key, queues in offsets.items():
                topic = key.partition("@")[0]
                for queue_id, queue_offset in queues.items():
                    queues[queue_id] = min(queue_offset, self._end(topic, queue_id))
        self._reopen_halves(table.offset_table)
        after = dump_table(table)
        if after != before:
            file.store(after)

    def _reopen_halves(self, offsets: dict[str, dict[int, int]]) -> None:
        halves = self._queues.find(RMQ_SYS_TRANS_HALF_TOPIC, 0)
        ops = self._queues.find(RMQ_SYS_TRANS_OP_HALF_TOPIC, 0)
        settled = offsets.get(_HALVES, {}).get(0)
        if halves is None or settled is None:
            return
        reopened = [half for half in self._effects.ended if halves.min_queue_offset <= half < settled]
        first = min(reopened, default=settled)
        unit = halves.unit(first)
        if first == settled or unit is None:
            return
        offsets[_HALVES][0] = first
        if ops is not None and 0 in offsets.get(_OPS, {}):
            # Those that end a half behind the first open one: all of them lie behind it in the log.
            needed = ops.first_where(lambda op: op.phy_offset > unit.phy_offset)
            offsets[_OPS][0] = min(needed, offsets[_OPS][0])

    # -- delays ------------------------------------------------------------------------------------

    def _cut_delays(self, phy_offset: int) -> None:
        file = JsonConfigFile(self._files, self._folder / "delayOffset.json")
        table = file.load_as(lambda raw: load_table(raw, NotedDelayOffsetTable))
        if table is None:
            return
        before = dump_table(table)
        for level, queue_offset in table.offset_table.items():
            table.offset_table[level] = min(queue_offset, self._first_undelivered(level))
        if table.log_phy_offset is not None:
            table.log_phy_offset = min(table.log_phy_offset, phy_offset)
        after = dump_table(table)
        if after != before:
            file.store(after)

    def _first_undelivered(self, level: int) -> int:
        """The first message of a level that the log up to the cut has no delivery of, as the tail tells."""
        queue = self._queues.find(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return 0
        origin = self._effects.delivered.get(level)
        return (
            queue.max_queue_offset
            if origin is None
            else queue.first_where(lambda unit: unit.phy_offset >= origin)
        )
