"""Spans of trace records: what a client recorded in the trace topic, as OpenTelemetry would have it.

A send is a PRODUCER span, a delivery a CONSUMER span; the end of a transaction and a recall are spans without
duration. All spans of a message are in one trace. If the message carries a `traceparent`, they join that
trace below its span; otherwise the trace id is derived from the message id, and the span of the send is the
parent of the others. Ids are derived from the records, so a record that is read twice gives the same span.

SpanDrafts collects records until a span is complete: SubBefore and SubAfter of a delivery may be in different
trace messages, in any order, and the record of the send, which has the topic, may come last.
Not here: reading the topic and the messages (trace_export.py), OTLP (otlp.py).
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from kourou.admin.messages.trace import Reported, TraceStatus, pair
from kourou.client.trace.span_attributes import Attributes, Conventions, operation, server
from kourou.client.trace.trace_data import (
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TraceMessageType,
)
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.properties import KEY_SEPARATOR

SETTLE_S: Final = 10.0
"""How long a delivery waits for its other record, and for the record of its send. Clients write records up to
five seconds after the event."""
UNFINISHED_S: Final = 16 * 60.0
"""When a delivery without end is exported as it is: a minute after the default timeout of handlers."""
_MAX_OPEN: Final = 100_000
_NS_PER_MS: Final = 1_000_000
_MAX_TIME_MS: Final = ((1 << 63) - 1) // _NS_PER_MS
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_TYPES: Final = {
    TraceMessageType.NORMAL: "normal",
    TraceMessageType.TRANSACTION_HALF: "transaction",
    TraceMessageType.TRANSACTION_COMMIT: "transaction",
    TraceMessageType.DELAY: "delay",
    TraceMessageType.ORDER: "fifo",
}
_ENDS: Final = {"COMMIT_MESSAGE": "commit", "ROLLBACK_MESSAGE": "rollback"}

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class SpanKind(enum.IntEnum):
    """As in OTLP."""

    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span that can be exported. Ids are in hexadecimal, times in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    trace_state: str | None
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    attributes: Attributes
    error: str | None
    """Why it failed; None if it did not."""
    service: str
    """The group of the client."""
    client_host: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message comes from, and the trace that its spans belong to."""

    topic: str | None
    trace_id: str
    parent_span_id: str | None
    """The span of the message's `traceparent`; None if it carries none."""
    is_sampled: bool = True
    trace_state: str | None = None


def origin_of(msg_id: str, topic: str | None, traceparent: str | None, tracestate: str | None) -> Origin:
    """The origin of a message; a `traceparent` that is not valid counts as none."""
    matched = _TRACEPARENT.fullmatch(traceparent or "")
    if matched is None or not int(matched[1], 16) or not int(matched[2], 16):
        return Origin(topic, _digest(msg_id, "trace")[:32], None)
    return Origin(topic, matched[1], matched[2], bool(int(matched[3], 16) & 1), tracestate)


@dataclass(frozen=True, slots=True)
class Draft:
    """A span whose trace is not yet known."""

    msg_id: str
    identity: str
    """Differs between the spans of a message."""
    operation: str
    kind: SpanKind
    begin_ms: int
    end_ms: int
    attributes: Attributes
    group: str
    client_host: str
    error: str | None = None
    topic: str | None = None

    def span(self, origin: Origin) -> TraceSpan:
        """The span, in the trace of its message."""
        topic = self.topic or origin.topic
        attributes = dict(self.attributes)
        if topic is not None:
            attributes["messaging.destination.name"] = topic
        return TraceSpan(
            trace_id=origin.trace_id,
            span_id=span_id(self.msg_id, self.identity),
            parent_span_id=origin.parent_span_id or self._parent(),
            trace_state=origin.trace_state,
            name=self.operation if topic is None else f"{self.operation} {topic}",
            kind=self.kind,
            start_ns=_nanoseconds(self.begin_ms),
            end_ns=_nanoseconds(max(self.begin_ms, self.end_ms)),
            attributes=attributes,
            error=self.error,
            service=self.group,
            client_host=self.client_host,
        )

    def _parent(self) -> str | None:
        return None if self.identity == SEND else span_id(self.msg_id, SEND)


def _nanoseconds(time_ms: int) -> int:
    """Within the limits of OTLP: a collector would reject all spans of a request for one that is not."""
    return min(max(0, time_ms), _MAX_TIME_MS) * _NS_PER_MS


SEND: Final = "send"


def span_id(msg_id: str, identity: str) -> str:
    """The id of a span of a message, always the same."""
    return _digest(msg_id, identity)[:16]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


class Recent(OrderedDict[KeyT, ValueT], Generic[KeyT, ValueT]):
    """The newest entries of a mapping."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._count:
            self.popitem(last=False)


Place = tuple[MessageQueue, int]
"""The queue of a trace message and its offset."""


@dataclass(slots=True)
class _Delivery:
    """A delivery that waits for records."""

    since_s: float
    place: Place
    begin: Reported | None = None
    end: Reported | None = None

    @property
    def msg_id(self) -> str:
        reported = self.begin or self.end
        assert reported is not None
        return reported.record.msg_id


@dataclass(slots=True)
class SpanDrafts:
    """Collects records. `conventions` chooses the names of attributes."""

    conventions: Conventions
    _ready: list[Draft] = field(default_factory=list)
    _deliveries: dict[tuple[str, str], _Delivery] = field(default_factory=dict)
    _sends: Recent[str, PubTrace] = field(default_factory=lambda: Recent(_MAX_OPEN))

    def add(self, reported: Reported, place: Place, now_s: float) -> None:
        """Add a record of the trace message at `place`."""
        record = reported.record
        if not isinstance(record, SubBeforeTrace | SubAfterTrace):
            self._ready.append(self._draft(record, reported.client_host))
            return
        # A request id is that of all messages of a call.
        key = (record.msg_id, record.request_id)
        delivery = self._deliveries.setdefault(key, _Delivery(now_s, place))
        if isinstance(record, SubBeforeTrace):
            delivery.begin = reported
        elif delivery.end is None:
            delivery.end, delivery.place, delivery.since_s = reported, place, now_s

    def take(self, now_s: float, is_known: Callable[[str], bool]) -> list[Draft]:
        """Remove and return what is complete, and what has waited long enough. `is_known` says whether the
        origin of a message is known."""
        taken, self._ready = self._ready, []
        surplus = len(self._deliveries) - _MAX_OPEN
        for number, (key, delivery) in enumerate(list(self._deliveries.items())):
            if number < surplus or _is_due(delivery, now_s, is_known):
                del self._deliveries[key]
                taken.append(self._delivery_draft(delivery))
        return taken

    def oldest_offsets(self) -> dict[MessageQueue, int]:
        """The offsets that must be read again after a crash, of queues that have some. A delivery that has
        only begun is not among them: its end is enough for a span."""
        offsets: dict[MessageQueue, int] = {}
        for delivery in self._deliveries.values():
            queue, queue_offset = delivery.place
            if delivery.end is not None:
                offsets[queue] = min(queue_offset, offsets.get(queue, queue_offset))
        return offsets

    # -- records -----------------------------------------------------------------------------------

    def _draft(self, record: PubTrace | EndTransactionTrace | RecallTrace, client_host: str) -> Draft:
        if isinstance(record, PubTrace):
            return self._send_draft(record, client_host)
        if isinstance(record, EndTransactionTrace):
            name = _ENDS.get(record.state, "check")
            attributes = operation("settle", name, record.topic) | server(record.store_host)
            attributes |= self._about(record.msg_id, record.tags, record.keys, record.message_type)
            identity = f"{name} {record.time_ms} {record.is_from_check}"
            return Draft(
                *(record.msg_id, identity, name, SpanKind.CLIENT, record.time_ms, record.time_ms),
                attributes | self.conventions.rocketmq({"from_transaction_check": record.is_from_check}),
                *(record.group, client_host),
                topic=record.topic,
            )
        return Draft(
            *(record.msg_id, f"recall {record.time_ms}", "recall", SpanKind.CLIENT),
            *(record.time_ms, record.time_ms),
            operation("settle", "recall", record.topic) | {"messaging.message.id": record.msg_id},
            *(record.group, client_host),
            error=None if record.is_success else TraceStatus.FAILED.value,
            topic=record.topic,
        )

    def _send_draft(self, record: PubTrace, client_host: str) -> Draft:
        """The first send of a message is the parent of its other spans."""
        first = self._sends.setdefault(record.msg_id, record)
        attributes = operation("send", "send", record.topic) | server(record.store_host)
        attributes["messaging.message.body.size"] = record.body_length
        attributes |= self._about(record.msg_id, record.tags, record.keys, record.message_type)
        return Draft(
            record.msg_id,
            SEND if record == first else f"{SEND} {record.time_ms} {record.offset_msg_id}",
            *(SEND, SpanKind.PRODUCER, record.time_ms, record.time_ms + record.cost_ms),
            attributes | self.conventions.client_group(record.group),
            *(record.group, record.client_host or client_host),
            error=None if record.is_success else TraceStatus.FAILED.value,
            topic=record.topic,
        )

    def _about(
        self, msg_id: str, tags: str | None, keys: str | None, message_type: TraceMessageType
    ) -> Attributes:
        return {"messaging.message.id": msg_id} | self.conventions.rocketmq(
            {
                "message.tag": tags or None,
                "message.keys": keys.split(KEY_SEPARATOR) if keys else None,
                "message.type": _TYPES[message_type],
            }
        )

    def _delivery_draft(self, delivery: _Delivery) -> Draft:
        group, attempt = pair(delivery.begin, delivery.end)
        attributes = operation("process", "process", None) | self.conventions.client_group(group)
        attributes["messaging.consumer.group.name"] = group
        attributes["messaging.message.id"] = delivery.msg_id
        attributes |= self.conventions.rocketmq(
            {"reconsume_times": attempt.retry_times, "consume_result": attempt.status.value}
        )
        return Draft(
            *(delivery.msg_id, f"process {attempt.request_id}", "process", SpanKind.CONSUMER),
            *(attempt.begin_ms, attempt.begin_ms if attempt.end_ms is None else attempt.end_ms),
            attributes,
            *(group, attempt.client_host),
            error=_error(attempt.status),
        )


def _is_due(delivery: _Delivery, now_s: float, is_known: Callable[[str], bool]) -> bool:
    waited_s = now_s - delivery.since_s
    if delivery.end is None:
        return waited_s >= UNFINISHED_S
    return waited_s >= SETTLE_S or (delivery.begin is not None and is_known(delivery.msg_id))


def _error(status: TraceStatus) -> str | None:
    if status is TraceStatus.SUCCESS:
        return None
    return "no end is recorded" if status is TraceStatus.UNFINISHED else status.value
