"""Message traces: what producers and consumers recorded about a message in the trace topic, as a timeline.

    trace = await message_trace(admin, "7F00000159805FFD2B2748C1FF0207A2")
    for send in trace.sends: ...
    for group in trace.consumers:
        for attempt in group.attempts: ...

`message_trace` finds the records of one message id, `traces_of_key` those of all messages with a key. Each
is one query per broker, at most `max_num` trace messages of each; `MessageTrace.problems` lists what may be
missing because of that, because a broker did not answer, or because a record could not be decoded. Clients
write their records seconds after the event, in batches, and drop them when no broker accepts them: a missing
record does not prove that something did not happen.

SubBefore and SubAfter of a delivery are paired by request id. A delivery without SubAfter is unfinished: the
handler still runs, the process died, or the record was lost. One without SubBefore begins at its end minus
its cost, and its number of retries is not known.
Not here: the format of records (client/trace/trace_data.py).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.messages.message_queries import FOR_EVER_MS, MAX_FOUND, KeySearch, search_by_key
from kourou.admin.session import Admin
from kourou.client.trace.trace_data import (
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TraceContextCode,
    TraceRecord,
    read_trace,
)
from kourou.errors import ProtocolError
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC
from kourou.protocol.properties import KEY_SEPARATOR


class TraceStatus(enum.StrEnum):
    """The outcome of a send or a consumption."""

    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"
    EXCEPTION = "exception"
    RETURNED_NULL = "returned null"
    UNFINISHED = "unfinished"
    """Its end is not recorded."""


_STATUS_OF_CODE: Final = {
    TraceContextCode.SUCCESS: TraceStatus.SUCCESS,
    TraceContextCode.TIMEOUT: TraceStatus.TIMEOUT,
    TraceContextCode.EXCEPTION: TraceStatus.EXCEPTION,
    TraceContextCode.RETURNED_NULL: TraceStatus.RETURNED_NULL,
    TraceContextCode.FAILED: TraceStatus.FAILED,
}


@dataclass(frozen=True, slots=True)
class SendTrace:
    """One send of the message. Times are in milliseconds since 1970, by the client's clock."""

    topic: str
    group: str
    keys: str | None
    tags: str | None
    begin_ms: int
    end_ms: int
    cost_ms: int
    message_type: str
    """`normal`, `transaction_half`, `transaction_commit`, `delay` or `order`."""
    client_host: str
    store_host: str | None
    retry_times: int
    """How many earlier sends of this message are recorded."""
    status: TraceStatus
    offset_msg_id: str | None
    body_length: int
    region: str | None


@dataclass(frozen=True, slots=True)
class TransactionTrace:
    """A transaction was ended, or left open, by its producer or in response to a broker's check."""

    time_ms: int
    state: str
    """`COMMIT_MESSAGE`, `ROLLBACK_MESSAGE` or `UNKNOW`."""
    is_from_check: bool
    group: str
    topic: str
    transaction_id: str | None
    client_host: str
    store_host: str | None


@dataclass(frozen=True, slots=True)
class RecallAttempt:
    """A delayed message was recalled before its time."""

    time_ms: int
    group: str
    topic: str
    client_host: str
    status: TraceStatus


@dataclass(frozen=True, slots=True)
class ConsumeAttempt:
    """One delivery to a consumer of a group."""

    begin_ms: int
    end_ms: int | None
    """None if it is unfinished."""
    cost_ms: int | None
    """The handler's time, divided by the number of messages that it was given."""
    status: TraceStatus
    retry_times: int | None
    """None if only the end is recorded."""
    client_host: str
    store_host: str
    """The broker of the trace record; the record does not name the broker of the message."""
    request_id: str


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """The deliveries of the message to one group, oldest first."""

    consumer_group: str
    attempts: list[ConsumeAttempt]


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """All that is recorded about a message, each list oldest first."""

    msg_id: str
    topic: str | None
    """None if no producer recorded it."""
    trace_topic: str
    begin_ms: int
    """The first recorded time."""
    end_ms: int
    """The last recorded time."""
    sends: list[SendTrace]
    transactions: list[TransactionTrace]
    recalls: list[RecallAttempt]
    consumers: list[GroupTrace]
    problems: list[str]
    """Why records may be missing; empty if all that the brokers have was read."""

    @property
    def is_complete(self) -> bool:
        """Whether everything was read, and every delivery has an end."""
        attempts = (attempt for group in self.consumers for attempt in group.attempts)
        return not self.problems and all(attempt.end_ms is not None for attempt in attempts)


async def message_trace(
    admin: Admin,
    msg_id: str,
    *,
    trace_topic: str = RMQ_SYS_TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = FOR_EVER_MS,
    max_num: int = MAX_FOUND,
) -> MessageTrace:
    """The trace of the message with this unique id. ResponseError NO_MESSAGE if there is none,
    TOPIC_NOT_EXIST without a trace topic.

    `begin_ms` and `end_ms` bound the time at which the records were stored, `max_num` the trace messages that
    each broker returns; brokers have a limit of their own, 64 by default.
    """
    search = await search_by_key(
        admin, trace_topic, msg_id, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms
    )
    return build_trace(msg_id, search, trace_topic)


async def traces_of_key(
    admin: Admin,
    key: str,
    *,
    topic: str | None = None,
    trace_topic: str = RMQ_SYS_TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = FOR_EVER_MS,
    max_num: int = MAX_FOUND,
) -> list[MessageTrace]:
    """The traces of all messages with a key, oldest first; with `topic`, without those that are known to be
    of another topic. Errors as in `message_trace`."""
    search = await search_by_key(admin, trace_topic, key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms)
    ids = {
        record.msg_id: None
        for message in search.messages
        for record in (reported.record for reported in reported_records(message)[0])
        if key in (getattr(record, "keys", None) or "").split(KEY_SEPARATOR)
    }
    traces = [build_trace(msg_id, search, trace_topic) for msg_id in ids]
    kept = [trace for trace in traces if topic is None or trace.topic in (None, topic)]
    return sorted(kept, key=lambda trace: trace.begin_ms)


# -- from records to a timeline ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reported:
    """A record, and what the trace message that contains it adds."""

    record: TraceRecord
    client_host: str
    store_host: str
    reported_ms: int
    """When the trace message was sent."""


def reported_records(message: MessageExt) -> tuple[list[Reported], list[str]]:
    """The records of a trace message, and what could not be decoded."""
    try:
        records, failures = read_trace(message.body.decode("utf-8", "replace"))
    except ProtocolError as error:  # a body that cannot be decompressed
        return [], [str(error)]
    client_host, store_host = _host(message.born_host), message.store_host
    reported_ms = message.born_timestamp
    return [Reported(record, client_host, store_host, reported_ms) for record in records], [
        str(failure) for failure in failures
    ]


def build_trace(msg_id: str, search: KeySearch, trace_topic: str) -> MessageTrace:
    """The trace of a message, from the trace messages of a search. Needs no connection."""
    # Keyed by record: a trace message that was sent twice has the same records.
    found: dict[TraceRecord, Reported] = {}
    problems = list(search.problems)
    for message in search.messages:
        all_reported, failures = reported_records(message)
        problems += [f"trace message {message.msg_id} on {message.broker_name}: {text}" for text in failures]
        for reported in all_reported:
            if reported.record.msg_id == msg_id:
                found.setdefault(reported.record, reported)
    return _Timeline(list(found.values())).trace(msg_id, trace_topic, problems)


class _Timeline:
    """The events of one message."""

    def __init__(self, found: list[Reported]) -> None:
        self._found = found

    def trace(self, msg_id: str, trace_topic: str, problems: list[str]) -> MessageTrace:
        sends = self._sends()
        transactions = self._transactions()
        recalls = self._recalls()
        consumers = self._consumers()
        times = [end.time_ms for end in transactions] + [recall.time_ms for recall in recalls]
        for send in sends:
            times += (send.begin_ms, send.end_ms)
        for attempt in (attempt for group in consumers for attempt in group.attempts):
            times += (attempt.begin_ms, attempt.begin_ms if attempt.end_ms is None else attempt.end_ms)
        topics = [send.topic for send in sends] + [end.topic for end in transactions]
        topics += [recall.topic for recall in recalls]
        return MessageTrace(
            msg_id=msg_id,
            topic=topics[0] if topics else None,
            trace_topic=trace_topic,
            begin_ms=min(times, default=0),
            end_ms=max(times, default=0),
            sends=sends,
            transactions=transactions,
            recalls=recalls,
            consumers=consumers,
            problems=problems,
        )

    def _sends(self) -> list[SendTrace]:
        sends = [
            SendTrace(
                topic=record.topic,
                group=record.group,
                keys=record.keys,
                tags=record.tags,
                begin_ms=record.time_ms,
                end_ms=record.time_ms + record.cost_ms,
                cost_ms=record.cost_ms,
                message_type=record.message_type.name.lower(),
                client_host=_host(record.client_host) if record.client_host else reported.client_host,
                store_host=record.store_host,
                retry_times=0,
                status=_status(record.is_success),
                offset_msg_id=record.offset_msg_id,
                body_length=record.body_length,
                region=record.region,
            )
            for reported in self._found
            if isinstance(record := reported.record, PubTrace)
        ]
        sends.sort(key=lambda send: send.begin_ms)
        return [replace(send, retry_times=number) for number, send in enumerate(sends)]

    def _transactions(self) -> list[TransactionTrace]:
        ends = [
            TransactionTrace(
                time_ms=record.time_ms,
                state=record.state,
                is_from_check=record.is_from_check,
                group=record.group,
                topic=record.topic,
                transaction_id=record.transaction_id,
                client_host=reported.client_host,
                store_host=record.store_host,
            )
            for reported in self._found
            if isinstance(record := reported.record, EndTransactionTrace)
        ]
        return sorted(ends, key=lambda end: end.time_ms)

    def _recalls(self) -> list[RecallAttempt]:
        recalls = [
            RecallAttempt(
                record.time_ms, record.group, record.topic, reported.client_host, _status(record.is_success)
            )
            for reported in self._found
            if isinstance(record := reported.record, RecallTrace)
        ]
        return sorted(recalls, key=lambda recall: recall.time_ms)

    def _consumers(self) -> list[GroupTrace]:
        """Deliveries by group. An end without group belongs to the group of its begin."""
        begins: dict[str, Reported] = {}
        ends: dict[str, Reported] = {}
        for reported in self._found:
            if isinstance(reported.record, SubBeforeTrace):
                begins[reported.record.request_id] = reported
            elif isinstance(reported.record, SubAfterTrace):
                ends[reported.record.request_id] = reported
        groups: dict[str, list[ConsumeAttempt]] = {}
        for request_id in dict.fromkeys([*begins, *ends]):
            group, attempt = pair(begins.get(request_id), ends.get(request_id))
            groups.setdefault(group, []).append(attempt)
        return [
            GroupTrace(group, sorted(groups[group], key=lambda attempt: attempt.begin_ms))
            for group in sorted(groups)
        ]


def pair(begin: Reported | None, end: Reported | None) -> tuple[str, ConsumeAttempt]:
    """The group of a delivery and the delivery, of its SubBefore and SubAfter record; one may be missing."""
    before = begin.record if begin is not None else None
    after = end.record if end is not None else None
    assert before is None or isinstance(before, SubBeforeTrace)
    assert after is None or isinstance(after, SubAfterTrace)
    record: SubBeforeTrace | SubAfterTrace | None = before or after
    reported = begin or end
    assert reported is not None and record is not None
    begin_ms, end_ms = _times(before, after, reported.reported_ms)
    attempt = ConsumeAttempt(
        begin_ms=begin_ms,
        end_ms=end_ms,
        cost_ms=None if after is None else after.cost_ms,
        status=TraceStatus.UNFINISHED if after is None else _consume_status(after),
        retry_times=None if before is None else before.retry_times,
        client_host=reported.client_host,
        store_host=reported.store_host,
        request_id=record.request_id,
    )
    return record.group or "", attempt


def _times(
    before: SubBeforeTrace | None, after: SubAfterTrace | None, reported_ms: int
) -> tuple[int, int | None]:
    """Begin and end of a delivery. The end of old clients is their begin plus the cost."""
    if after is None:
        assert before is not None
        return before.time_ms, None
    if after.time_ms is not None:
        return before.time_ms if before else after.time_ms - after.cost_ms, after.time_ms
    begin_ms = before.time_ms if before else reported_ms - after.cost_ms
    return begin_ms, begin_ms + after.cost_ms


def _status(is_success: bool) -> TraceStatus:
    return TraceStatus.SUCCESS if is_success else TraceStatus.FAILED


def _consume_status(record: SubAfterTrace) -> TraceStatus:
    """The reason of a failure, if the record gives one that fits."""
    status = _STATUS_OF_CODE[record.context_code]
    if record.is_success != (status is TraceStatus.SUCCESS):
        return _status(record.is_success)
    return status


def _host(address: str) -> str:
    return address.rpartition(":")[0] or address
