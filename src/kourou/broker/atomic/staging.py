"""Checks of a part that is staged: its messages have to be such that a later publish cannot fail of them.

Topics, permissions, admission checks and hooks are those of a send, at the time of staging.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kourou.broker.delay.delayed_messages import is_delayed
from kourou.broker.hooks import BrokerHooks, SendContext
from kourou.broker.send.send_targets import SendTargets
from kourou.errors import RequestError
from kourou.protocol.atomic import (
    ATOMIC_PROPERTY,
    MAX_BROKER_NAME,
    MAX_PART,
    MAX_TIMEOUT_MS,
    StagedGroup,
    decode_groups,
)
from kourou.protocol.batch import BatchEntry, encode_batch_entries, split_batch
from kourou.protocol.codes import MessageSysFlag, ResponseCode
from kourou.protocol.headers.atomic import StageAtomicRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.layout import MAX_PROPERTIES_BYTES
from kourou.protocol.names import is_retry_topic
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY
from kourou.protocol.properties import (
    is_prepared,
    properties_from_bytes,
    properties_to_bytes,
    remove_property,
)
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.store.log.log_appender import LogAppender

_TRANSACTION_BITS: Final = MessageSysFlag.TRANSACTION_MASK.value
# Names that change what becomes of a message, or that only a broker may set, contain one of these.
_NOTED: Final = tuple(
    name.encode() for name in ("DELAY", "TIMER_DEL", "TRAN_MSG", SEQUENCE_PROPERTY, ATOMIC_PROPERTY)
)
# What a publish adds: the id, and the number of the message.
_ADDED_BYTES: Final = 160


class StagingChecks:
    """Checks parts for one broker."""

    def __init__(self, *, targets: SendTargets, hooks: BrokerHooks, appender: LogAppender) -> None:
        self._targets = targets
        self._admission = targets.admission
        self._hooks = hooks
        self._appender = appender

    def checked_groups(self, request: Request, header: StageAtomicRequestHeader) -> list[StagedGroup]:
        """The groups of a part, as they are stored. RequestError, ProtocolError: nothing may be staged."""
        _check_header(header)
        self._admission.check_room()
        groups = decode_groups(request.body)
        if not groups:
            raise _illegal("the part has no messages")
        return [self._checked(request, header, group) for group in groups]

    def _checked(self, request: Request, header: StageAtomicRequestHeader, group: StagedGroup) -> StagedGroup:
        if is_retry_topic(group.topic):
            raise _illegal(f"{group.topic} is a retry topic")
        if group.sys_flag & _TRANSACTION_BITS:
            raise _illegal(f"topic {group.topic}: half messages of transactions are not possible")
        sent = SendMessageRequestHeaderV2(
            producer_group=header.producer_group,
            topic=group.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=group.queue_id,
            sys_flag=group.sys_flag,
            born_timestamp=group.born_timestamp,
            flag=0,
            batch=True,
        )
        target = self._targets.check_topic(request, sent)
        if group.queue_id >= target.queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{group.queue_id}] is illegal: topic {group.topic} has "
                f"{target.queue_nums} queues",
            )
        entries = split_batch(group.entries)
        checked = entries
        # Searched in all messages at once: most have none of these names.
        if any(name in group.entries for name in _NOTED):
            checked = [_checked_entry(group.topic, entry) for entry in entries]
        self._check_sizes(group.topic, checked)
        context = SendContext(
            group.topic,
            group.queue_id,
            header.producer_group,
            group.entries,
            "",
            request.connection.remote_address,
        )
        if target.needs_slow_path:
            self._admission.check_message(context)
        if self._hooks.before_send:
            self._hooks.call(self._hooks.before_send, context)
        return StagedGroup(
            group.topic,
            group.queue_id,
            group.sys_flag | target.sys_flag,
            group.born_timestamp,
            group.entries if checked is entries or checked == entries else encode_batch_entries(checked),
        )

    def _check_sizes(self, topic: str, entries: Sequence[BatchEntry]) -> None:
        max_bytes, max_properties = self._appender.max_message_bytes, MAX_PROPERTIES_BYTES - _ADDED_BYTES
        for _, body, raw in entries:
            if len(raw) > max_properties:
                raise _illegal(f"topic {topic}: properties of {len(raw)} bytes; {max_properties} are allowed")
            if not 0 < len(body) <= max_bytes:
                raise _illegal(f"topic {topic}: a body of {len(body)} bytes; 1 to {max_bytes} are allowed")


def _checked_entry(topic: str, entry: BatchEntry) -> BatchEntry:
    """One message, without properties that it may not have."""
    raw = entry.raw_properties
    if not any(name in raw for name in _NOTED):
        return entry
    properties = properties_from_bytes(raw)
    if is_prepared(properties):
        raise _illegal(f"topic {topic}: half messages of transactions are not possible")
    if is_delayed(properties):
        raise _illegal(f"topic {topic}: delayed messages are not possible")
    for name in (SEQUENCE_PROPERTY, ATOMIC_PROPERTY):
        properties = remove_property(properties, name)
    return entry._replace(raw_properties=properties_to_bytes(properties))


def _check_header(header: StageAtomicRequestHeader) -> None:
    if not 0 <= header.kourou_part <= MAX_PART:
        raise _illegal(f"part {header.kourou_part}: the number must be from 0 to {MAX_PART}")
    if not 0 < header.kourou_timeout_ms <= MAX_TIMEOUT_MS:
        raise _illegal(
            f"a timeout of {header.kourou_timeout_ms} ms; it must be from 1 to {MAX_TIMEOUT_MS} ms"
        )
    if not 0 < len(header.kourou_coordinator) <= MAX_BROKER_NAME:
        raise _illegal(f"the coordinator must be a broker name of 1 to {MAX_BROKER_NAME} characters")


def _illegal(problem: str) -> RequestError:
    return RequestError(ResponseCode.MESSAGE_ILLEGAL, f"atomic publish: {problem}")
