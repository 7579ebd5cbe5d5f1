"""Traces: what producers and consumers recorded about a message, or about all messages with a key."""

from __future__ import annotations

from typing import Final

import msgspec

from kourou.admin.messages.message_queries import FOR_EVER_MS
from kourou.admin.messages.trace import MessageTrace, message_trace, traces_of_key
from kourou.admin.session import command_line
from kourou.clock import wall_ms
from kourou.console.api.messages import TimeMs
from kourou.console.api_errors import bad_input, not_found
from kourou.console.endpoints import Call, Endpoint, NoBody, Read
from kourou.errors import ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC


class TraceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message by its id, or all with a key."""

    id: str = ""
    key: str = ""
    topic: str = ""
    """With `key`: only messages of this topic."""
    trace_topic: str = RMQ_SYS_TRACE_TOPIC
    begin: TimeMs = 0
    """Recorded at or after this time."""
    end: TimeMs | None = None


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of one message."""

    trace: MessageTrace
    is_complete: bool
    """Whether everything was read, and every delivery has an end."""


class TraceList(msgspec.Struct, frozen=True, kw_only=True):
    """The traces that were found, oldest first."""

    items: list[TraceView]
    as_of: int
    commands: list[str]


async def _traces(call: Call[TraceQuery, NoBody]) -> TraceList:
    query = call.query
    if bool(query.id) == bool(query.key):
        raise bad_input("id", "give either the id of a message or a key")
    try:
        traces = await _read(call)
    except ResponseError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            hint = "brokers create the system trace topic with traceTopicEnable=true; clients may use another"
            raise not_found(f"there is no trace topic {query.trace_topic}", hint) from None
        if error.code != ResponseCode.NO_MESSAGE:
            raise
        traces = []
    # Clients record by id; the commands of RocketMQ look for an id only.
    ids = [query.id] if query.id else [trace.msg_id for trace in traces]
    words = ["-t", query.trace_topic] if query.trace_topic != RMQ_SYS_TRACE_TOPIC else []
    return TraceList(
        items=[TraceView(trace=trace, is_complete=trace.is_complete) for trace in traces],
        as_of=wall_ms(),
        commands=[
            command_line(call.admin.namesrvs, "queryMsgTraceById", "-i", msg_id, *words) for msg_id in ids
        ],
    )


async def _read(call: Call[TraceQuery, NoBody]) -> list[MessageTrace]:
    query = call.query
    end_ms = FOR_EVER_MS if query.end is None else query.end
    if query.id:
        return [
            await message_trace(
                call.admin, query.id, trace_topic=query.trace_topic, begin_ms=query.begin, end_ms=end_ms
            )
        ]
    return await traces_of_key(
        call.admin,
        query.key,
        topic=query.topic or None,
        trace_topic=query.trace_topic,
        begin_ms=query.begin,
        end_ms=end_ms,
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/traces",
        summary="The trace of a message, or of all messages with a key",
        query=TraceQuery,
        handler=_traces,
        returns=TraceList,
    ),
)
