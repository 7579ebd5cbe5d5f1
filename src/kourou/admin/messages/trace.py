"""Message traces: what producers and consumers recorded about one message in the trace topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kourou.admin.messages.message_queries import FOR_EVER_MS, MAX_FOUND, query_by_key
from kourou.admin.session import Admin
from kourou.client.trace.trace_data import (
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TraceRecord,
    decode_trace,
)
from kourou.errors import ProtocolError
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One send, or one consumption."""

    group: str
    client_host: str
    time_ms: int
    cost_ms: int
    is_success: bool


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """Consumptions of a message by one group."""

    consumer_group: str
    events: list[TraceEvent]


@dataclass(frozen=True, slots=True)
class MessageTraces:
    """The traces of a message: sends, and consumption by group."""

    msg_id: str
    sent: list[TraceEvent]
    consumed: list[GroupTrace]


async def message_traces(
    admin: Admin,
    msg_id: str,
    *,
    trace_topic: str = RMQ_SYS_TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = FOR_EVER_MS,
    max_num: int = MAX_FOUND,
) -> MessageTraces:
    """All traces of a message. ResponseError NO_MESSAGE if there are none."""
    found = await query_by_key(admin, trace_topic, msg_id, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms)
    sent: list[TraceEvent] = []
    consumed: dict[str, list[TraceEvent]] = {}
    for message in found:
        records = [record for record in _records(message) if record.msg_id == msg_id]
        host = message.born_host.rpartition(":")[0]
        sent += [_sent(record, host) for record in records if isinstance(record, PubTrace)]
        for event in _consumed(records, host, message.born_timestamp):
            consumed.setdefault(event.group, []).append(event)
    return MessageTraces(
        msg_id,
        sorted(sent, key=lambda event: event.time_ms),
        [
            GroupTrace(group, sorted(consumed[group], key=lambda event: event.time_ms))
            for group in sorted(consumed)
        ],
    )


def _records(message: MessageExt) -> list[TraceRecord]:
    """The records of a trace message; empty if the topic contains something else."""
    try:
        return decode_trace(message.body.decode("utf-8", "replace"))
    except ProtocolError:
        return []


def _sent(record: PubTrace, host: str) -> TraceEvent:
    return TraceEvent(record.group, host, record.time_ms, record.cost_ms, record.is_success)


def _consumed(records: Iterable[TraceRecord], host: str, reported_ms: int) -> list[TraceEvent]:
    """Completed consumptions. One without time and client takes them from its start record."""
    begun = {record.request_id: record for record in records if isinstance(record, SubBeforeTrace)}
    events = []
    for record in records:
        if isinstance(record, SubAfterTrace):
            before = begun.get(record.request_id)
            group = record.group or (before.group if before else "")
            time_ms = record.time_ms or (before.time_ms if before else reported_ms)
            events.append(TraceEvent(group, host, time_ms, record.cost_ms, record.is_success))
    return events
