"""The lists of offsets in the answer to a pop: which messages the body holds, and how often each came.

One entry for each queue that messages come from, joined by `;`; topicKind is PopTopicKind:

    startOffsetInfo   topicKind queueId startOffset
    msgOffsetInfo     topicKind queueId offset,offset,…      in the order of the body
    orderCountInfo    topicKind qo<queueId>%<offset> count   of one message
                      topicKind queueId count                of the others of the queue

A client refuses an answer that names a queue twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.pop.retry_topics import PopTopicKind

__all__ = [
    "OrderCounts",
    "PoppedQueue",
    "QueueKey",
    "decode_offset_infos",
    "decode_order_counts",
    "encode_msg_offset_info",
    "encode_order_counts",
    "encode_start_offset_info",
]

QueueKey = tuple[PopTopicKind, int]
"""Which of its topics a message was popped from, and the queue_id."""

_OFFSET_MARK: Final = "qo"
_SHOWN: Final = 200


class PoppedQueue(NamedTuple):
    """The messages of one queue in an answer; a handle names `start_offset` as its check point."""

    kind: PopTopicKind
    queue_id: int
    start_offset: int
    offsets: Sequence[int]


class OrderCounts(NamedTuple):
    """How often messages of orderly POP were delivered before: `by_queue` for all of a queue,
    `by_offset` for single ones."""

    by_queue: dict[QueueKey, int]
    by_offset: dict[tuple[PopTopicKind, int, int], int]

    def count_of(self, kind: PopTopicKind, queue_id: int, queue_offset: int) -> int:
        """Of one message."""
        known = self.by_offset.get((kind, queue_id, queue_offset))
        return self.by_queue.get((kind, queue_id), 0) if known is None else known


def encode_start_offset_info(queues: Iterable[PoppedQueue]) -> str:
    """`startOffsetInfo` of an answer."""
    return ";".join(f"{kind.value} {queue_id} {start}" for kind, queue_id, start, _ in queues)


def encode_msg_offset_info(queues: Iterable[PoppedQueue]) -> str:
    """`msgOffsetInfo` of an answer."""
    return ";".join(
        f"{kind.value} {queue_id} {','.join(map(str, offsets))}" for kind, queue_id, _, offsets in queues
    )


def encode_order_counts(counts: OrderCounts) -> str:
    """`orderCountInfo` of an answer."""
    entries = [
        f"{kind.value} {_OFFSET_MARK}{queue_id}%{offset} {count}"
        for (kind, queue_id, offset), count in counts.by_offset.items()
    ]
    entries += [f"{kind.value} {queue_id} {count}" for (kind, queue_id), count in counts.by_queue.items()]
    return ";".join(entries)


def decode_offset_infos(start_offset_info: str | None, msg_offset_info: str | None) -> list[PoppedQueue]:
    """The queues of an answer, in the order of `msgOffsetInfo`. ProtocolError: the lists are none, or do not
    fit each other."""
    starts: dict[QueueKey, int] = {}
    for entry in _entries(start_offset_info):
        key, text = _key_and_value("startOffsetInfo", entry)
        starts[key] = _number("startOffsetInfo", text)
    queues: dict[QueueKey, PoppedQueue] = {}
    for entry in _entries(msg_offset_info):
        key, text = _key_and_value("msgOffsetInfo", entry)
        offsets = tuple(_number("msgOffsetInfo", offset) for offset in text.split(","))
        if key in queues or key not in starts:
            raise ProtocolError(
                f"msgOffsetInfo: the queue {key[0].value} {key[1]} is there twice, or not in startOffsetInfo"
            )
        queues[key] = PoppedQueue(*key, starts[key], offsets)
    return list(queues.values())


def decode_order_counts(order_count_info: str | None) -> OrderCounts:
    """`orderCountInfo` of an answer. ProtocolError: it is none."""
    by_queue: dict[QueueKey, int] = {}
    by_offset: dict[tuple[PopTopicKind, int, int], int] = {}
    name = "orderCountInfo"
    for entry in _entries(order_count_info):
        kind_text, place, count_text = _three(name, entry)
        kind, count = _kind(name, kind_text), _number(name, count_text)
        if place.startswith(_OFFSET_MARK):
            queue_id, _, offset = place.removeprefix(_OFFSET_MARK).partition("%")
            by_offset[kind, _number(name, queue_id), _number(name, offset)] = count
        else:
            by_queue[kind, _number(name, place)] = count
    return OrderCounts(by_queue, by_offset)


def _entries(info: str | None) -> list[str]:
    return info.split(";") if info else []


def _three(name: str, entry: str) -> tuple[str, str, str]:
    parts = entry.split(" ")
    if len(parts) != 3:
        raise ProtocolError(f"{name}: expected three words separated by spaces, got {entry[:_SHOWN]!r}")
    return parts[0], parts[1], parts[2]


def _key_and_value(name: str, entry: str) -> tuple[QueueKey, str]:
    kind, queue_id, value = _three(name, entry)
    return (_kind(name, kind), _number(name, queue_id)), value


def _kind(name: str, text: str) -> PopTopicKind:
    try:
        return PopTopicKind(text)
    except ValueError:
        raise ProtocolError(f"{name}: a topic is 0, 1 or 2, not {text[:_SHOWN]!r}") from None


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ProtocolError(f"{name}: expected a number, got {text[:_SHOWN]!r}")
    return int(text)
