"""export_traces: reads the trace topic and exports what clients of any language recorded as spans.

A consumer group reads the topic, so a program that is started again continues where it was, and several of
them share the work. Offsets are committed once the spans are exported; after a crash some records are read
again and give the same spans, with the same ids.

To join the trace of a message that carries a `traceparent`, the message itself is read, by the offset id in
the record of its send. Spans of a message whose `traceparent` is not sampled are not exported. Clients that
create spans of their own would be seen twice: switch their trace off, or leave out messages with a context.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.connections import replica_addresses
from kourou.admin.messages.message_queries import query_by_unique_key, search_by_key
from kourou.admin.messages.messages import view_message
from kourou.admin.messages.trace import reported_records
from kourou.admin.messages.trace_spans import Draft, Origin, Recent, SpanDrafts, TraceSpan, origin_of
from kourou.admin.session import Admin
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.push.consumer_options import ConsumeFrom
from kourou.client.trace.span_attributes import OPT_IN, Conventions
from kourou.client.trace.trace_data import PubTrace
from kourou.errors import ProtocolError, RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC

_log = logging.getLogger(__name__)

EXPORT_GROUP: Final = "KOUROU_TRACE_EXPORT"
"""The consumer group, if no other is given."""
_POLL_MS: Final = 1_000
_PULL_BATCH: Final = 32
_MAX_LOOKUPS: Final = 16
_MAX_KNOWN: Final = 100_000
_MAX_TOPICS: Final = 10_000
_ROUTE_S: Final = 30.0

ExportSpans = Callable[[Sequence[TraceSpan]], Awaitable[None]]
"""Exports spans; returns when they are accepted. `OtlpExporter.export` is one."""


@dataclass(slots=True)
class ExportStats:
    """Counters since the start."""

    records: int = 0
    spans: int = 0
    """Spans given to the exporter."""
    unreadable: int = 0
    """Records that could not be decoded."""
    repeated: int = 0
    """Spans that were exported before."""
    left_out: int = 0
    """Spans of messages that are not sampled, or were to be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceExportOptions:
    """What is exported."""

    trace_topic: str = RMQ_SYS_TRACE_TOPIC
    group: str = EXPORT_GROUP
    consume_from: ConsumeFrom = "last"
    """Where a group without an offset begins."""
    with_context: bool = True
    """Whether to export spans of messages that carry a `traceparent`."""
    lookup: bool = True
    """Whether to read messages for their `traceparent`; if not, each message is a trace of its own."""


async def export_traces(
    admin: Admin, export: ExportSpans, options: TraceExportOptions | None = None
) -> ExportStats:
    """Export what is recorded until the task is cancelled. Errors are those of a consumer and of `export`;
    ResponseError TOPIC_NOT_EXIST without a trace topic.

        exporter = OtlpExporter("http://localhost:4318/v1/traces")
        async with Admin(namesrv="127.0.0.1:9876") as admin:
            await export_traces(admin, exporter.export)
    """
    running = TraceExport(admin, export, options or TraceExportOptions())
    await running.run()
    return running.stats


class TraceExport:
    """One run of `export_traces`."""

    def __init__(self, admin: Admin, export: ExportSpans, options: TraceExportOptions) -> None:
        self._admin = admin
        self._export = export
        self._options = options
        self._origins = _Origins(admin, options)
        self._drafts = SpanDrafts(Conventions(os.environ.get(OPT_IN)))
        self._exported: Recent[str, None] = Recent(_MAX_KNOWN)
        self._offsets: dict[MessageQueue, int] = {}
        self._routes_since_s = 0.0
        self._is_stopping = False
        self.stats = ExportStats()

    def stop(self) -> None:
        """Let `run` return once the spans in hand are exported and the offsets committed."""
        self._is_stopping = True

    async def run(self) -> None:
        """Export until `stop`, or until cancelled. What is not exported then, the next run exports."""
        options = self._options
        await self._admin.route(options.trace_topic)  # a consumer would wait for a topic that does not exist
        consumer = AsyncLitePullConsumer(
            options.group,
            auto_commit=False,
            consume_from=options.consume_from,
            pull_batch_size=_PULL_BATCH,
            **self._admin.options,
        )
        async with consumer:
            await consumer.subscribe(options.trace_topic)
            while not self._is_stopping:
                await self.step(await consumer.poll(_POLL_MS))
                await consumer.commit(self._committable(consumer.assignment()))

    async def step(self, messages: Iterable[MessageExt]) -> None:
        """Add trace messages and export what is complete."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._routes_since_s > _ROUTE_S:
            self._routes_since_s = now_s
            self._origins.forget_brokers()
        for message in messages:
            self._add(message, now_s)
        drafts = self._drafts.take(now_s, self._origins.is_known)
        origins = await self._origins.of(draft.msg_id for draft in drafts)
        spans: dict[str, TraceSpan] = {}
        for draft in drafts:
            span = self._span(draft, origins[draft.msg_id])
            if span is None:
                self.stats.left_out += 1
            elif span.span_id in spans or span.span_id in self._exported:
                self.stats.repeated += 1
            else:
                spans[span.span_id] = span
        if spans:
            await self._export(list(spans.values()))
            self.stats.spans += len(spans)
            for span_id in spans:
                self._exported[span_id] = None

    def _add(self, message: MessageExt, now_s: float) -> None:
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        reported, failures = reported_records(message)
        self.stats.records += len(reported)
        self.stats.unreadable += len(failures)
        for failure in failures:
            _log.warning("trace message %s: %s", message.msg_id, failure)
        for each in reported:
            if isinstance(each.record, PubTrace):
                self._origins.add(each.record)
            self._drafts.add(each, (queue, message.queue_offset), now_s)
        self._offsets[queue] = message.queue_offset + 1

    def _span(self, draft: Draft, origin: Origin) -> TraceSpan | None:
        is_joined = origin.parent_span_id is not None
        if not origin.is_sampled or (is_joined and not self._options.with_context):
            return None
        return draft.span(origin)

    def _committable(self, assigned: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offsets before which all is exported. Those of a queue that another member has now are dropped:
        if the queue returns, they are older than that member's."""
        self._offsets = {queue: self._offsets[queue] for queue in assigned if queue in self._offsets}
        held = self._drafts.oldest_offsets()
        return {queue: min(offset, held.get(queue, offset)) for queue, offset in self._offsets.items()}


class _Origins:
    """The origins of messages: of the record of their send, and their own properties."""

    def __init__(self, admin: Admin, options: TraceExportOptions) -> None:
        self._admin = admin
        self._options = options
        self._sends: Recent[str, PubTrace] = Recent(_MAX_KNOWN)
        self._found: Recent[str, Origin] = Recent(_MAX_KNOWN)
        self._lookups = asyncio.Semaphore(_MAX_LOOKUPS)
        self._addresses: Recent[str, frozenset[str]] = Recent(_MAX_TOPICS)

    def forget_brokers(self) -> None:
        """Request routes again: they change when brokers are added."""
        self._addresses.clear()

    def add(self, record: PubTrace) -> None:
        """Remember the record of a send; the first one, if there are several."""
        if record.msg_id not in self._sends:
            self._sends[record.msg_id] = record

    def is_known(self, msg_id: str) -> bool:
        """Whether a message's send was recorded."""
        return msg_id in self._sends or msg_id in self._found

    async def of(self, msg_ids: Iterable[str]) -> dict[str, Origin]:
        """The origins of messages."""
        ids = list(dict.fromkeys(msg_ids))
        origins = await asyncio.gather(*map(self._of, ids))
        return dict(zip(ids, origins, strict=True))

    async def _of(self, msg_id: str) -> Origin:
        origin = self._found.get(msg_id)
        if origin is None:
            async with self._lookups:
                origin = await self._look_up(msg_id)
            self._found[msg_id] = origin
        return origin

    async def _look_up(self, msg_id: str) -> Origin:
        record = self._sends.get(msg_id)
        unjoined = origin_of(msg_id, record.topic if record else None, None, None)
        if not self._options.lookup:
            return unjoined
        try:
            record = record or await self._query_send(msg_id)
            if record is None:
                return unjoined
            unjoined = replace(unjoined, topic=record.topic)
            message = await self._message(record)
        except (ProtocolError, RemotingError, ResponseError) as error:
            _log.debug("message %s could not be read: %s", msg_id, error)
            return unjoined
        properties = message.properties
        return origin_of(msg_id, record.topic, properties.get("traceparent"), properties.get("tracestate"))

    async def _message(self, record: PubTrace) -> MessageExt:
        """The message of a record, by its offset id if that names a broker of the topic: any client can write
        records, and must not choose the addresses that this program connects to."""
        offset_msg_id = record.offset_msg_id
        if offset_msg_id and parse_offset_msg_id(offset_msg_id).address in await self._brokers(record.topic):
            message = await view_message(self._admin, offset_msg_id, record.topic)
            if message.msg_id == record.msg_id:
                return message
        return (await query_by_unique_key(self._admin, record.topic, record.msg_id))[0]

    async def _brokers(self, topic: str) -> frozenset[str]:
        addresses = self._addresses.get(topic)
        if addresses is None:
            addresses = frozenset(replica_addresses(await self._admin.route(topic)))
            self._addresses[topic] = addresses
        return addresses

    async def _query_send(self, msg_id: str) -> PubTrace | None:
        """The record of a send that was read before this program started."""
        try:
            search = await search_by_key(self._admin, self._options.trace_topic, msg_id)
        except ResponseError:
            return None
        sends = [
            each.record
            for message in search.messages
            for each in reported_records(message)[0]
            if isinstance(each.record, PubTrace) and each.record.msg_id == msg_id
        ]
        return min(sends, key=lambda send: send.time_ms, default=None)
