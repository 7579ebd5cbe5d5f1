"""CheckPointTable: which popped messages are neither acked nor put into a retry topic, and until when.

Pure: no clock, no files. A check point is a run of messages that one pop took from one queue. It is open
until all of them are acked, revived or dropped. The records of the revive topic make the table durable. It
has their places in the log (`phy_offset`, `ack_phy_offsets`), and the check point's in the revive queue.

    on the wheel     the records wait as timer messages. When the check point is finished they are settled:
                     the timers need not deliver them, neither the check point nor its acks. If the timers
                     have entered the check point, they have to enter its acks, too: a restart finds both.
    in the queue     the timers have delivered the check point to its revive queue, or are about to. Then its
                     acks have to follow, or a restart would find it without them.

The progress of a revive queue lies just below its oldest open check point, else at the last record that was
read.
Not here: writing and reading the records (revive_log.py, revive_reader.py), what is done with messages whose
time has ended (revive_service.py).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from kourou.protocol.names import REVIVE_LOG_TOPIC_PREFIX
from kourou.protocol.pop.revive_records import CHECK_POINT_TAG, CheckPointBody, CheckPointKey

_BUCKET_MS: Final = 100
"""Check points are due together that end within such a time: they are taken up to so much late."""
_NOTHING_READ: Final = -1
_ON_WHEEL: Final = -1
_UNREAD: Final = -2
_LONG_RANGE: Final = 1 << 64


class _Queue:
    """The open check points of one group in one queue, by start offset and pop time."""

    __slots__ = ("broker_name", "group", "open", "queue_id", "topic")

    def __init__(self, topic: str, group: str, queue_id: int, broker_name: str) -> None:
        self.topic, self.group, self.queue_id, self.broker_name = topic, group, queue_id, broker_name
        self.open: dict[int, CheckPoint] = {}


class CheckPoint:
    """One check point. A million may be open: no dict, no list, and names are shared by all of a queue.

    Bits stand for messages, the lowest for the first. `acked`: those that are acked or revived. `acking`:
    those whose acks are on their way to the log. `due_ms`: monotonic, the end of the invisible time.
    `is_dropped`: their topic was deleted; messages at these offsets are those of another one.
    """

    __slots__ = (
        "_differences",
        "_queue",
        "ack_phy_offsets",
        "acked",
        "acking",
        "due_ms",
        "full",
        "invisible_time",
        "is_dropped",
        "phy_offset",
        "place",
        "pop_time",
        "revive_queue_id",
        "start_offset",
    )

    def __init__(
        self, queue: _Queue, body: CheckPointBody, *, revive_queue_id: int, due_ms: int, phy_offset: int
    ) -> None:
        offsets, start_offset = body.queue_offsets, body.start_offset
        count = len(offsets)
        is_run = offsets == list(range(start_offset, start_offset + count))
        self._queue = queue
        self._differences = None if is_run else tuple(offset - start_offset for offset in offsets)
        self.full = (1 << count) - 1
        self.start_offset = start_offset
        self.pop_time = body.pop_time
        self.invisible_time = body.invisible_time
        self.acked = body.bit_map & self.full
        self.acking = 0
        self.due_ms = due_ms
        self.is_dropped = False
        self.revive_queue_id = revive_queue_id
        self.phy_offset = phy_offset
        self.ack_phy_offsets: tuple[int, ...] = ()
        self.place = _ON_WHEEL

    @property
    def topic(self) -> str:
        """The topic that the messages lie in, which may be a retry topic."""
        return self._queue.topic

    @property
    def group(self) -> str:
        """The group that popped them."""
        return self._queue.group

    @property
    def queue_id(self) -> int:
        """Their queue."""
        return self._queue.queue_id

    @property
    def broker_name(self) -> str:
        """The broker that they were popped from, by the name that it had."""
        return self._queue.broker_name

    @property
    def is_open(self) -> bool:
        """Whether a message is neither acked nor revived."""
        return self.acked != self.full

    @property
    def unacked(self) -> int:
        """The bits of those messages."""
        return self.full & ~self.acked

    @property
    def visible_again_ms(self) -> int:
        """The end of the invisible time by the wall clock of then: when its acks are delivered."""
        return self.pop_time + self.invisible_time

    def bits_of(self, queue_offsets: Iterable[int]) -> int:
        """The bits of messages; those that do not belong to it have none."""
        bits, start, differences = 0, self.start_offset, self._differences
        count = self.full.bit_length()
        for offset in queue_offsets:
            difference = offset - start
            if differences is not None:
                bits |= 1 << differences.index(difference) if difference in differences else 0
            elif 0 <= difference < count:
                bits |= 1 << difference
        return bits

    def offsets_of(self, bits: int) -> list[int]:
        """The queue offsets of the messages with these bits."""
        start, differences = self.start_offset, self._differences
        indexes = [index for index in range(bits.bit_length()) if bits >> index & 1]
        return [start + (index if differences is None else differences[index]) for index in indexes]


class _ReviveQueue:
    """How far a revive queue was read, and the check points that were found there."""

    __slots__ = ("last_read", "placed")

    def __init__(self) -> None:
        self.last_read = _NOTHING_READ
        self.placed: deque[CheckPoint] = deque()

    def progress(self) -> int:
        placed = self.placed
        while placed and not placed[0].is_open:
            placed.popleft()
        return placed[0].place - 1 if placed else self.last_read


class CheckPointTable:
    """The open check points of one broker, whose name is that of records without one."""

    def __init__(self, own_broker: str) -> None:
        self._own_broker = own_broker
        self._queues: dict[tuple[str, str, int, str], _Queue] = {}
        self._buckets: dict[int, dict[CheckPoint, None]] = {}
        self._bucket_heap: list[int] = []
        self._overdue: deque[CheckPoint] = deque()
        # Whether the record need not even be entered.
        self._settled: dict[int, bool] = {}
        # Check points that are delivered, and not read in their revive queues yet.
        self._delivering: set[int] = set()
        self._entered_phy_offset = -1
        self._revive_queues: dict[int, _ReviveQueue] = {}
        self._counts: dict[tuple[str, str], dict[int, int]] = {}
        self._open_count = 0
        self._message_count = 0

    def __len__(self) -> int:
        """How many check points are open."""
        return self._open_count

    @property
    def message_count(self) -> int:
        """How many messages are in flight."""
        return self._message_count

    @property
    def settled_count(self) -> int:
        """How many records wait on the wheel that need not be delivered."""
        return len(self._settled)

    # -- adding and finding ------------------------------------------------------------------------

    def add(
        self,
        body: CheckPointBody,
        *,
        revive_queue_id: int,
        due_ms: int,
        phy_offset: int,
        is_waiting: bool = True,
    ) -> CheckPoint | None:
        """Take a check point whose record lies at `phy_offset`, as a timer message if `is_waiting`. None: it
        is open already (`find`), or none of its messages is unacked."""
        name = body.broker_name or self._own_broker
        queue_key = (body.topic, body.group, body.queue_id, name)
        queue = self._queues.get(queue_key)
        if queue is None:
            queue = _Queue(*queue_key)
        key = body.start_offset * _LONG_RANGE + body.pop_time
        if key in queue.open:
            return None
        added = CheckPoint(queue, body, revive_queue_id=revive_queue_id, due_ms=due_ms, phy_offset=phy_offset)
        if not is_waiting:
            added.place = _UNREAD
        if not added.is_open:
            return None
        self._queues[queue_key] = queue
        queue.open[key] = added
        self._open_count += 1
        self._count(added, added.unacked.bit_count())
        self._schedule(added)
        return added

    def find(self, key: CheckPointKey) -> CheckPoint | None:
        """An open check point."""
        queue = self._queues.get((key.topic, key.group, key.queue_id, key.broker_name or self._own_broker))
        return None if queue is None else queue.open.get(key.start_offset * _LONG_RANGE + key.pop_time)

    # -- acks --------------------------------------------------------------------------------------

    def finish(self, check_point: CheckPoint, bits: int, ack_phy_offset: int | None = None) -> int:
        """Messages are acked, revived or dropped; how many of them had not been. `ack_phy_offset`: where the
        record of it lies, if that waits as a timer message."""
        new = bits & check_point.unacked
        was_open = check_point.is_open
        check_point.acked |= new
        if ack_phy_offset is not None:
            check_point.ack_phy_offsets += (ack_phy_offset,)
        if new:
            self._count(check_point, -new.bit_count())
        if not check_point.is_open:
            if was_open:
                self._close(check_point)
            elif ack_phy_offset is not None and self._is_on_wheel(check_point):  # of a late ack
                self._settled[ack_phy_offset] = not self._is_entered(check_point)
        return new.bit_count()

    def _close(self, check_point: CheckPoint) -> None:
        queue = check_point._queue
        del queue.open[check_point.start_offset * _LONG_RANGE + check_point.pop_time]
        if not queue.open:
            del self._queues[queue.topic, queue.group, queue.queue_id, queue.broker_name]
        self._open_count -= 1
        self._unschedule(check_point)
        if self._is_on_wheel(check_point):
            is_needless = not self._is_entered(check_point)
            self._settled.update(dict.fromkeys(check_point.ack_phy_offsets, is_needless))
        if check_point.place < 0:  # what arrives of it is not taken for a new one
            self._settled[check_point.phy_offset] = True

    def _is_on_wheel(self, check_point: CheckPoint) -> bool:
        return check_point.place == _ON_WHEEL and check_point.phy_offset not in self._delivering

    def _is_entered(self, check_point: CheckPoint) -> bool:
        return check_point.phy_offset <= self._entered_phy_offset

    def is_settled(self, phy_offset: int) -> bool:
        """Whether the record there need not be delivered."""
        return phy_offset in self._settled

    def is_needless(self, phy_offset: int) -> bool:
        """Whether it need not be entered into the wheel either."""
        return self._settled.get(phy_offset, False)

    def entering(self, phy_offset: int) -> None:
        """The timers enter what lies up to there."""
        self._entered_phy_offset = max(self._entered_phy_offset, phy_offset)

    def delivering(self, phy_offset: int, topic: str, tags: str | None) -> None:
        """The timers put the record there into a queue of this topic."""
        if tags == CHECK_POINT_TAG and topic.startswith(REVIVE_LOG_TOPIC_PREFIX):
            self._delivering.add(phy_offset)

    def delivered(self, phy_offset: int) -> None:
        """A check point was read in its revive queue that was made from the record there."""
        self._delivering.discard(phy_offset)

    def forget_settled(self, phy_offsets: Iterable[int]) -> None:
        """These records were passed over: they are not asked for again."""
        for phy_offset in phy_offsets:
            self._settled.pop(phy_offset, None)
            self._delivering.discard(phy_offset)  # its delivery has failed before

    # -- time --------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When `take_due` has something to give; None: no check point is open, or all are taken."""
        while self._overdue and not self._overdue[0].is_open:
            self._overdue.popleft()
        if self._overdue:
            return self._overdue[0].due_ms
        heap = self._bucket_heap
        while heap and heap[0] not in self._buckets:
            heapq.heappop(heap)
        return (heap[0] + 1) * _BUCKET_MS if heap else None

    def take_due(self, now_ms: int, limit: int) -> list[CheckPoint]:
        """Up to `limit` open check points whose invisible time has ended, the oldest first; each is given
        once, until it is postponed."""
        taken: dict[CheckPoint, None] = {}
        while len(taken) < limit:
            if not self._overdue and not self._open_bucket(now_ms):
                break
            check_point = self._overdue.popleft()
            if check_point.is_open:
                taken[check_point] = None
        return list(taken)

    def _open_bucket(self, now_ms: int) -> bool:
        """Move the next bucket that is over to the overdue check points; False: none is."""
        due_ms = self.next_due_ms
        if due_ms is None or due_ms > now_ms:
            return False
        self._overdue.extend(self._buckets.pop(heapq.heappop(self._bucket_heap)))
        return True

    def postpone(self, check_point: CheckPoint, due_ms: int) -> None:
        """Have one that was taken come again, if it is open still."""
        if check_point.is_open:
            check_point.due_ms = due_ms
            self._schedule(check_point)

    def _schedule(self, check_point: CheckPoint) -> None:
        number = check_point.due_ms // _BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._bucket_heap, number)
        bucket[check_point] = None

    def _unschedule(self, check_point: CheckPoint) -> None:
        number = check_point.due_ms // _BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is not None:
            bucket.pop(check_point, None)
            if not bucket:
                del self._buckets[number]

    def drop_topic(self, topic: str) -> None:
        """A topic was deleted: its check points are due, and there is nothing to deliver."""
        for queue in self._queues.values():
            if queue.topic == topic:
                for check_point in queue.open.values():
                    check_point.is_dropped = True
                    self._unschedule(check_point)
                    self._overdue.append(check_point)

    # -- revive queues -----------------------------------------------------------------------------

    def place(self, check_point: CheckPoint, queue_offset: int) -> None:
        """An open check point was found in its revive queue; the first place counts."""
        if check_point.place < 0:
            check_point.place = queue_offset
            self._revive_queue(check_point.revive_queue_id).placed.append(check_point)

    def read(self, revive_queue_id: int, queue_offset: int) -> None:
        """A revive queue was read up to and including `queue_offset`."""
        self._revive_queue(revive_queue_id).last_read = queue_offset

    def last_read(self, revive_queue_id: int) -> int:
        """How far it was read; -1: not at all."""
        return self._revive_queue(revive_queue_id).last_read

    def progress(self, revive_queue_id: int) -> int:
        """Below and at this offset there is nothing in the revive queue that is still needed; -1: nothing was
        read."""
        return self._revive_queue(revive_queue_id).progress()

    def _revive_queue(self, revive_queue_id: int) -> _ReviveQueue:
        queue = self._revive_queues.get(revive_queue_id)
        if queue is None:
            queue = self._revive_queues[revive_queue_id] = _ReviveQueue()
        return queue

    # -- numbers -----------------------------------------------------------------------------------

    def count(self, topic: str, group: str, queue_id: int | None = None) -> int:
        """How many messages of a topic, as it lies, are in flight to a group; of one queue, or of all."""
        queues = self._counts.get((topic, group))
        if queues is None:
            return 0
        return sum(queues.values()) if queue_id is None else queues.get(queue_id, 0)

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """Topic, group, and how many messages are in flight."""
        for (topic, group), queues in list(self._counts.items()):
            yield topic, group, sum(queues.values())

    def _count(self, check_point: CheckPoint, change: int) -> None:
        key, queue_id = (check_point.topic, check_point.group), check_point.queue_id
        queues = self._counts.setdefault(key, {})
        count = queues.get(queue_id, 0) + change
        self._message_count += change
        if count:
            queues[queue_id] = count
            return
        queues.pop(queue_id, None)
        if not queues:
            del self._counts[key]
