"""Checks of a part that is staged: its messages have to be such that a later publish cannot fail of them.

Topics, permissions, admission checks and hooks are those of a send, at the time of staging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.delay.delayed_messages import DELAY_PROPERTIES, is_delayed
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
    MessageConst,
    is_prepared,
    properties_from_bytes,
    properties_to_bytes,
    remove_property,
)
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.settings import KernelStatus
    from kourou.store.log.log_appender import LogAppender

_TRANSACTION_BITS: Final = MessageSysFlag.TRANSACTION_MASK.value
# Names that change what becomes of a message, or that only a broker may set.
_NOTED: Final = tuple(
    name.encode()
    for name in (
        *DELAY_PROPERTIES,
        MessageConst.PROPERTY_TRANSACTION_PREPARED,
        SEQUENCE_PROPERTY,
        ATOMIC_PROPERTY,
    )
)
# A name that contains another one is found with it.
_SEARCHED: Final = tuple(
    name for name in _NOTED if not any(other in name for other in _NOTED if other != name)
)
# What a publish adds: the id, and the number of the message.
_ADDED_BYTES: Final = 160


class CheckedPart(NamedTuple):
    """The groups of a part, as they are stored, and the number of all messages."""

    groups: list[StagedGroup]
    messages: int


class StagingChecks:
    """Checks parts for one broker."""

    def __init__(
        self, *, targets: SendTargets, hooks: BrokerHooks, appender: LogAppender, kernel: KernelStatus
    ) -> None:
        self._targets = targets
        self._admission = targets.admission
        self._hooks = hooks
        self._appender = appender
        self._kernel = kernel

    def checked(self, request: Request, header: StageAtomicRequestHeader) -> CheckedPart:
        """A part that may be staged. RequestError, ProtocolError: it may not."""
        _check_header(header)
        self._admission.check_room()
        groups = decode_groups(request.body)
        if not groups:
            raise _illegal("the part has no messages")
        checked = [self._checked_group(request, header, group) for group in groups]
        return CheckedPart([group for group, _ in checked], sum(messages for _, messages in checked))

    def _checked_group(
        self, request: Request, header: StageAtomicRequestHeader, group: StagedGroup
    ) -> tuple[StagedGroup, int]:
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
        entries, messages = self._checked_entries(group)
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
        sys_flag = group.sys_flag | target.sys_flag
        checked = StagedGroup(group.topic, group.queue_id, sys_flag, group.born_timestamp, entries)
        return checked, messages

    def _checked_entries(self, group: StagedGroup) -> tuple[bytes, int]:
        """The messages of a group as they are stored, and their number."""
        topic, raw_entries, kernel = group.topic, group.entries, self._kernel.current.kernel
        max_body, max_properties = self._appender.max_message_bytes, MAX_PROPERTIES_BYTES - _ADDED_BYTES
        if kernel is not None and (
            messages := kernel.check_entries(raw_entries, max_body, max_properties, _NOTED)
        ):
            return raw_entries, messages
        entries = split_batch(raw_entries)
        checked = entries
        # Searched in all messages at once: most have none of these names.
        if any(name in raw_entries for name in _SEARCHED):
            checked = [_checked_entry(topic, entry) for entry in entries]
        for _, body, raw in checked:
            if len(raw) > max_properties:
                raise _illegal(f"topic {topic}: properties of {len(raw)} bytes; {max_properties} are allowed")
            if not 0 < len(body) <= max_body:
                raise _illegal(f"topic {topic}: a body of {len(body)} bytes; 1 to {max_body} are allowed")
        return raw_entries if checked == entries else encode_batch_entries(checked), len(entries)


def _checked_entry(topic: str, entry: BatchEntry) -> BatchEntry:
    """One message, without properties that it may not have."""
    raw = entry.raw_properties
    if not any(name in raw for name in _SEARCHED):
        return entry
    properties = properties_from_bytes(raw)
    if is_prepared(properties):
        raise _illegal(f"topic {topic}: half messages of transactions are not possible")
    if is_delayed(properties):
        raise _illegal(f"topic {topic}: delayed messages are not possible")
    kept = remove_property(remove_property(properties, SEQUENCE_PROPERTY), ATOMIC_PROPERTY)
    return entry if kept == properties else entry._replace(raw_properties=properties_to_bytes(kept))


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
