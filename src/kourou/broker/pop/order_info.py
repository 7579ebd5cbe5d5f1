"""OrderedPops: what orderly POP has handed out, by topic, group and queue.

One entry for each queue: the messages that a group was given last, which of them are acknowledged, and when
the others become visible again. Until then the queue is blocked for this group, so that messages are consumed
in order. Pure: the time is passed in; nothing is stored here, and no offset is committed. The entries are
those of Apache's `consumerOrderInfo.json`.
Not here: waiting for the end of a block, by a clock that is not set (orders.py), the file (order_table.py).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

from kourou.protocol.pop.offset_infos import OrderCounts
from kourou.protocol.pop.retry_topics import PopTopicKind
from kourou.store.config_tables import OrderInfo

__all__ = [
    "IDLE_MS",
    "MAX_ORDERED_MESSAGES",
    "AckResult",
    "OrderKey",
    "OrderedAck",
    "OrderedPop",
    "OrderedPops",
    "stored_table",
]

MAX_ORDERED_MESSAGES: Final = 63
"""What the bits of an entry can tell apart: Apache keeps them in a long."""
IDLE_MS: Final = 24 * 3_600_000
"""Entries of groups that have popped nothing for so long are dropped."""
# What clients ask for by default: entries of early versions have none.
_INVISIBLE_MS: Final = 60_000
_SEPARATOR: Final = "@"


class OrderKey(NamedTuple):
    """A queue as one group reads it."""

    topic: str
    group: str
    queue_id: int


class AckResult(enum.Enum):
    """What an ack, or a change of the invisible time, did."""

    DONE = enum.auto()
    OLD = enum.auto()
    """Nothing: the message is acknowledged already, or was popped again since, or is not in flight."""
    NOT_POPPED = enum.auto()
    """Nothing: that pop did not return such a message."""


class OrderedAck(NamedTuple):
    """The outcome of an ack. `next_offset` is to be committed; None: nothing has changed."""

    result: AckResult
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class OrderedPop:
    """What a group was given from a queue last. `acked` has bit i set when `offsets[i]` is acknowledged;
    `visible_at` and `counts` are by queue offset: a changed end of the invisible time, and how often a
    message was delivered before."""

    attempt_id: str | None
    pop_time: int
    invisible_time_ms: int
    offsets: tuple[int, ...]
    consumed_ms: int
    acked: int = 0
    visible_at: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def unacked(self) -> Iterator[int]:
        """The messages that are not acknowledged."""
        return (offset for bit, offset in enumerate(self.offsets) if not self.acked >> bit & 1)

    @property
    def next_offset(self) -> int:
        """Where the group continues: at the first message that is not acknowledged, or behind the last."""
        return next(self.unacked, self.offsets[-1] + 1)

    @property
    def block_end_ms(self) -> int | None:
        """When all that is not acknowledged is visible again; None: everything is acknowledged."""
        end_ms = self.pop_time + self.invisible_time_ms
        return max((self.visible_at.get(offset, end_ms) for offset in self.unacked), default=None)

    def is_attempt(self, attempt_id: str | None) -> bool:
        """Whether this was the same attempt. A repeated one is not blocked: it is given the same messages
        again."""
        return attempt_id is not None and attempt_id == self.attempt_id

    def counts_after(self, attempt_id: str | None, offsets: Sequence[int]) -> dict[int, int]:
        """How often each of `offsets` was delivered before a pop that follows this one; 0 is left out."""
        again = 0 if self.is_attempt(attempt_id) else 1
        before = frozenset(self.offsets)
        counts = {offset: self.counts.get(offset, 0) + again for offset in offsets if offset in before}
        return {offset: count for offset, count in counts.items() if count}

    @classmethod
    def of(cls, info: OrderInfo) -> Self | None:
        """The entry as it is stored; None: it holds no message."""
        if not info.offset_list:
            return None
        first = info.offset_list[0]
        invisible_ms = info.invisible_time_ms
        return cls(
            info.attempt_id,
            info.pop_time,
            invisible_ms if invisible_ms is not None and invisible_ms > 0 else _INVISIBLE_MS,
            (first, *(first + distance for distance in info.offset_list[1:])),
            info.last_consume_timestamp,
            info.commit_offset_bit,
            info.offset_next_visible_time,
            info.offset_consumed_count,
        )

    def stored(self) -> OrderInfo:
        """The entry as it is stored."""
        first = self.offsets[0]
        return OrderInfo(
            self.pop_time,
            self.invisible_time_ms,
            [first, *(offset - first for offset in self.offsets[1:])],
            dict(self.visible_at),
            dict(self.counts),
            self.consumed_ms,
            self.acked,
            self.attempt_id,
        )


class OrderedPops:
    """The entries of one broker."""

    def __init__(self) -> None:
        self._entries: dict[OrderKey, OrderedPop] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[OrderKey]:
        return iter(self._entries)

    def entry(self, key: OrderKey) -> OrderedPop | None:
        """The last pop; None: nothing is known of this queue."""
        return self._entries.get(key)

    # -- consuming -------------------------------------------------------------------------------

    def block_end_ms(self, key: OrderKey) -> int | None:
        """When the block of the queue ends by time; None: nothing is in flight."""
        entry = self._entries.get(key)
        return None if entry is None else entry.block_end_ms

    def in_flight(self, key: OrderKey) -> int:
        """Messages that are popped and not acknowledged."""
        entry = self._entries.get(key)
        return 0 if entry is None else len(entry.offsets) - entry.acked.bit_count()

    def pop(
        self,
        key: OrderKey,
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time_ms: int,
        offsets: Sequence[int],
        now_ms: int,
    ) -> OrderCounts:
        """These messages are handed out; returns how often each was before. ValueError: there are none, or
        more than MAX_ORDERED_MESSAGES."""
        if not 0 < len(offsets) <= MAX_ORDERED_MESSAGES:
            raise ValueError(
                f"a pop in order returns 1 to {MAX_ORDERED_MESSAGES} messages, not {len(offsets)}"
            )
        last = self._entries.get(key)
        counts = {} if last is None else last.counts_after(attempt_id, offsets)
        self._entries[key] = OrderedPop(
            attempt_id, pop_time, invisible_time_ms, tuple(offsets), now_ms, counts=counts
        )
        kind = PopTopicKind.of(key.topic)
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        return OrderCounts(
            {(kind, key.queue_id): least},
            {(kind, key.queue_id, offset): count for offset, count in counts.items()},
        )

    def ack(self, key: OrderKey, *, queue_offset: int, pop_time: int) -> OrderedAck:
        """One message is consumed."""
        entry, bit, result = self._find(key, queue_offset, pop_time)
        if entry is None:
            return OrderedAck(result)
        entry = self._entries[key] = replace(entry, acked=entry.acked | 1 << bit)
        return OrderedAck(result, entry.next_offset)

    def change_invisible_time(
        self, key: OrderKey, *, queue_offset: int, pop_time: int, visible_ms: int
    ) -> AckResult:
        """One message becomes visible again at `visible_ms`."""
        entry, _, result = self._find(key, queue_offset, pop_time)
        if entry is not None:
            self._entries[key] = replace(entry, visible_at={**entry.visible_at, queue_offset: visible_ms})
        return result

    def _find(
        self, key: OrderKey, queue_offset: int, pop_time: int
    ) -> tuple[OrderedPop | None, int, AckResult]:
        """The entry with this message in flight, and its bit; without an entry, why there is none.

        Unlike Apache's broker, an ack changes nothing if no entry has its message: it would move the group
        to wherever it says.
        """
        entry = self._entries.get(key)
        if entry is None or queue_offset < entry.next_offset or pop_time != entry.pop_time:
            return None, 0, AckResult.OLD
        try:
            bit = entry.offsets.index(queue_offset)
        except ValueError:
            return None, 0, AckResult.NOT_POPPED
        return (None, 0, AckResult.OLD) if entry.acked >> bit & 1 else (entry, bit, AckResult.DONE)

    # -- forgetting ------------------------------------------------------------------------------

    def set(self, key: OrderKey, entry: OrderedPop | None) -> None:
        """Replace the entry of a queue by what the journal says, or by the one before a pop that failed."""
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry

    def clear(self, key: OrderKey) -> bool:
        """Forget a queue: it is not blocked any more. Whether there was something."""
        return self._entries.pop(key, None) is not None

    def clean(self, is_there: Callable[[OrderKey], bool], now_ms: int) -> list[OrderKey]:
        """Drop what is idle, and queues that are not there any more; returns those that are dropped."""
        gone = [
            key
            for key, entry in self._entries.items()
            if now_ms - entry.consumed_ms > IDLE_MS or not is_there(key)
        ]
        for key in gone:
            del self._entries[key]
        return gone

    # -- as a file -------------------------------------------------------------------------------

    def load(self, table: Mapping[str, Mapping[int, OrderInfo]]) -> None:
        """Take over the entries of `consumerOrderInfo.json`."""
        self._entries = {}
        for name, queues in table.items():
            topic, separator, group = name.partition(_SEPARATOR)
            for queue_id, info in queues.items():
                entry = OrderedPop.of(info)
                if separator and entry is not None:
                    self._entries[OrderKey(topic, group, queue_id)] = entry

    def entries(self) -> dict[OrderKey, OrderedPop]:
        """The entries as they are now; what changes later is not in there."""
        return dict(self._entries)


def stored_table(entries: Mapping[OrderKey, OrderedPop]) -> dict[str, dict[int, OrderInfo]]:
    """The entries as `consumerOrderInfo.json` has them."""
    table: dict[str, dict[int, OrderInfo]] = {}
    for key, entry in entries.items():
        table.setdefault(f"{key.topic}{_SEPARATOR}{key.group}", {})[key.queue_id] = entry.stored()
    return table
