"""redrive: send dead letters back to the group that gave up on them.

A copy goes to the group's retry topic, `%RETRY%group`, which only members of that group read; they see it
under its original topic. So each message is delivered once, and to that group only. The copy starts over
(reconsumeTimes 0) and gets as many attempts as a new message. With `to_topic` the copy goes to the original
topic instead, where *every* group receives it.

Groups that consume in order lock their queues, and RocketMQ 5 brokers treat whatever is sent to the retry
topic of such a group as given up: it would become a dead letter at once. For those the broker is requested
to take the dead letter back (CONSUMER_SEND_MSG_BACK), as a consumer would: the message is redelivered within
a second or two, counts as one more attempt, and becomes a dead letter again if that attempt fails.

Nothing is lost: a dead letter stays in place until its file expires. Redriven messages are recognised by
their copies: each lists in REDRIVEN_FROM, separated by commas, the dead letters it comes from; a copy made by
the broker has one attempt more than its dead letter. Before a dead letter is sent, the brokers are queried
for messages with its id (`messageIndexEnable`, on by default, is needed), and it is skipped if one of them is
its copy. Copies are younger than dead letters, so they do not expire first. A message that fails again and is
given up again is a new dead letter, which can be redriven.

A send is attempted once only: after a timeout the message may be stored, and the next run finds out.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.connections import consumer_connection
from kourou.admin.messages.dead_letters import (
    DeadLetter,
    Selection,
    dead_letter_spans,
    origin_topic,
    read_dead_letters,
)
from kourou.admin.messages.message_queries import query_by_unique_key
from kourou.admin.messages.message_reading import QueuePlace, QueueSpan
from kourou.admin.running_info import PROP_CONSUME_ORDERLY, running_info
from kourou.admin.session import Admin
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.errors import ConfigError, KourouError, ProtocolError, RemotingError, ResponseError
from kourou.protocol.bodies import ConsumeType, MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import ViewMessageRequestHeader
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.names import is_dlq_topic, is_retry_topic, retry_topic
from kourou.protocol.properties import MessageConst
from kourou.protocol.record import decode_record

REDRIVE_GROUP: Final = "KOUROU_REDRIVE"
"""The producer group."""
# Tolerance for brokers' clocks: a copy may seem this much older than its dead letter.
_CLOCK_SLACK_MS: Final = 600_000
_FIRST_DELAY_LEVEL: Final = 1
_RETURN_TIMEOUT_S: Final = 5.0
REDRIVEN_FROM: Final = "REDRIVEN_FROM"
"""The property of a copy: the offset ids of its dead letters, the newest last."""
_UNIQ_KEY: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_ORIGIN_ID: Final = MessageConst.PROPERTY_ORIGIN_MESSAGE_ID
# Number of redrives after which the oldest dead letter of a message is forgotten.
_MAX_ANCESTORS: Final = 100
# Set by the first send, the broker and the attempts so far.
_NOT_COPIED: Final = frozenset(
    {
        MessageConst.PROPERTY_DELAY_TIME_LEVEL,
        MessageConst.PROPERTY_REAL_TOPIC,
        MessageConst.PROPERTY_REAL_QUEUE_ID,
        MessageConst.PROPERTY_WAIT_STORE_MSG_OK,
        MessageConst.PROPERTY_RECONSUME_TIME,
        MessageConst.PROPERTY_MAX_RECONSUME_TIMES,
        MessageConst.PROPERTY_CONSUME_START_TIMESTAMP,
        MessageConst.PROPERTY_TRANSACTION_PREPARED,
        MessageConst.PROPERTY_PRODUCER_GROUP,
        MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES,
        MessageConst.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        MessageConst.PROPERTY_MSG_REGION,
        MessageConst.PROPERTY_TRACE_SWITCH,
        MessageConst.PROPERTY_CLUSTER,
        MessageConst.PROPERTY_MIN_OFFSET,
        MessageConst.PROPERTY_MAX_OFFSET,
        MessageConst.PROPERTY_CRC32,
        MessageConst.PROPERTY_POP_CK,
        MessageConst.PROPERTY_POP_CK_OFFSET,
        MessageConst.PROPERTY_FIRST_POP_TIME,
        MessageConst.PROPERTY_TIMER_DELAY_SEC,
        MessageConst.PROPERTY_TIMER_DELAY_MS,
        MessageConst.PROPERTY_TIMER_DELIVER_MS,
        MessageConst.PROPERTY_TIMER_ENQUEUE_MS,
        MessageConst.PROPERTY_TIMER_DEQUEUE_MS,
        MessageConst.PROPERTY_TIMER_ROLL_TIMES,
        MessageConst.PROPERTY_TIMER_OUT_MS,
        MessageConst.PROPERTY_DLQ_ORIGIN_TOPIC,
        MessageConst.PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        REDRIVEN_FROM,
    }
)


class RedriveOutcome(enum.StrEnum):
    """The outcome of redriving a dead letter."""

    SENT = "sent"
    FAILED = "failed"
    ALREADY = "redriven before"
    WOULD_SEND = "would be sent"


@dataclass(frozen=True, slots=True)
class Redriven:
    """One dead letter and its outcome."""

    number: int
    """Number among those that are sent, or would be, from 1; 0 for others."""
    outcome: RedriveOutcome
    letter: DeadLetter
    target: str = ""
    """The topic it is sent to."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """The dead letters to send back, and how. Later ones are not included."""

    group: str
    selection: Selection
    spans: list[QueueSpan]
    to_topic: bool = False
    """Send to the original topic of each, and so to all its groups."""
    sends_back: bool = False
    """The broker takes them back, because the group consumes in order."""
    again: bool = False
    """Include those that were redriven before."""
    limit: int | None = None
    """Maximum number to send."""


async def plan_redrive(
    admin: Admin,
    group: str,
    selection: Selection | None = None,
    *,
    to_topic: bool = False,
    again: bool = False,
    limit: int | None = None,
    spans: list[QueueSpan] | None = None,
) -> RedrivePlan:
    """Determine what to send; with `spans` of these ranges only. ResponseError TOPIC_NOT_EXIST if there is no
    such group."""
    selection = selection or Selection()
    if spans is None:
        spans = await dead_letter_spans(admin, group, selection)
    sends_back = bool(spans) and not to_topic and await _consumes_in_order(admin, group)
    return RedrivePlan(group, selection, spans, to_topic, sends_back, again, limit)


async def _consumes_in_order(admin: Admin, group: str) -> bool:
    """Whether an online member reports it. ConfigError if the group reads another retry topic."""
    try:
        connection = await consumer_connection(admin, group)
    except ResponseError:
        return False  # No member is online: locks last for a minute at most.
    if connection.consume_type is ConsumeType.CONSUME_POP:
        raise ConfigError(
            f"{group} consumes by POP, which has a retry topic for each topic; give --to-topic, "
            "and all groups of the topic receive the messages again"
        )
    for member in connection.connection_set:
        try:
            info = await running_info(admin, group, member.client_id)
        except (RemotingError, ResponseError):
            continue
        return info.properties.get(PROP_CONSUME_ORDERLY, "").lower() == "true"
    return False


# -- preview -----------------------------------------------------------------------------------------


async def preview(admin: Admin, plan: RedrivePlan) -> AsyncIterator[Redriven]:
    """What `redrive` would do, without sending."""
    async for _, _, found in _meant(admin, plan):
        yield found


async def _meant(admin: Admin, plan: RedrivePlan) -> AsyncIterator[tuple[QueuePlace, MessageExt, Redriven]]:
    """Every dead letter of the plan, with what is known before sending; up to the limit."""
    number = 0
    async for place, message in read_dead_letters(admin, plan.spans, plan.selection):
        if plan.limit is not None and number >= plan.limit:
            return
        found = await _assess(admin, plan, message, number + 1)
        number += found.outcome is not RedriveOutcome.ALREADY
        yield place, message, found


async def _assess(admin: Admin, plan: RedrivePlan, message: MessageExt, number: int) -> Redriven:
    letter = DeadLetter.of(message)
    if not letter.topic:
        reason = "its original topic is not known"
        return Redriven(number, RedriveOutcome.FAILED, letter, reason=reason)
    target = letter.topic if plan.to_topic else retry_topic(plan.group)
    try:
        if not plan.again and await was_redriven(admin, plan.group, message):
            return Redriven(0, RedriveOutcome.ALREADY, letter, target)
    except (RemotingError, ResponseError) as error:
        reason = f"cannot determine whether it was redriven before: {error}"
        return Redriven(number, RedriveOutcome.FAILED, letter, target, reason)
    return Redriven(number, RedriveOutcome.WOULD_SEND, letter, target)


async def was_redriven(admin: Admin, group: str, letter: MessageExt) -> bool:
    """Whether a copy of a dead letter exists, in the retry topic or in its original topic."""
    for topic in (retry_topic(group), origin_topic(letter)):
        if topic is None:
            continue
        try:
            begin_ms = max(0, letter.store_timestamp - _CLOCK_SLACK_MS)
            found = await query_by_unique_key(admin, topic, letter.msg_id, begin_ms=begin_ms)
        except ResponseError as error:
            if error.code not in (ResponseCode.NO_MESSAGE, ResponseCode.TOPIC_NOT_EXIST):
                raise
            continue
        if any(is_copy_of(message, letter) for message in found):
            return True
    return False


# -- sending -----------------------------------------------------------------------------------------


async def redrive(admin: Admin, plan: RedrivePlan) -> AsyncIterator[Redriven]:
    """Send the dead letters of a plan one after the other, and report the outcome of each."""
    async with AsyncProducer(REDRIVE_GROUP, retry_times=0, **admin.options) as producer:
        sender = _Sender(admin, producer, plan)
        async for place, message, found in _meant(admin, plan):
            if found.outcome is RedriveOutcome.WOULD_SEND:
                found = await sender.send(place, message, found)
            yield found
        await sender.wait_returned()


class _Sender:
    """Sends copies, or lets the broker create them."""

    def __init__(self, admin: Admin, producer: AsyncProducer, plan: RedrivePlan) -> None:
        self._admin = admin
        self._producer = producer
        self._group = plan.group
        self._sends_back = plan.sends_back
        self._queues: dict[str, list[MessageQueue]] = {}
        self._turn = 0
        self._last_returned: MessageExt | None = None

    async def send(self, place: QueuePlace, message: MessageExt, found: Redriven) -> Redriven:
        """Send one dead letter back; returns it with its outcome."""
        try:
            if not self._sends_back:
                result = await self._send_copy(place, message, found.target)
                if found.target == found.letter.topic or await self._has_arrived(place, result):
                    return replace(found, outcome=RedriveOutcome.SENT)
                self._sends_back = True
            await self._send_back(place, message, found.letter.topic)
        except (KourouError, ValueError) as error:
            return replace(found, outcome=RedriveOutcome.FAILED, reason=str(error).partition("\n")[0])
        return replace(found, outcome=RedriveOutcome.SENT)

    async def _send_copy(self, place: QueuePlace, message: MessageExt, target: str) -> SendResult:
        copy = copy_of_dead_letter(message, target)
        return await self._producer.send(copy, queue=await self._queue(place, target))

    async def _queue(self, place: QueuePlace, target: str) -> MessageQueue:
        """A queue on the broker of the dead letter, so that the copy is kept as long; else any."""
        if target not in self._queues:
            # A missing topic is an error here; the producer would create it again.
            await self._admin.route(target)
            self._queues[target] = await self._producer.queues(target)
        queues = self._queues[target]
        near = [queue for queue in queues if queue.broker_name == place.queue.broker_name] or queues
        self._turn += 1
        return near[self._turn % len(near)]

    async def _has_arrived(self, place: QueuePlace, result: SendResult) -> bool:
        """Whether a copy is in its target topic, and not among the dead letters again."""
        if result.queue.broker_name != place.queue.broker_name:
            return True
        try:
            phy_offset = parse_offset_msg_id(result.offset_msg_id).phy_offset
            header = ViewMessageRequestHeader(topic=result.queue.topic, phy_offset=phy_offset)
            answer = await self._admin.call(place.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
            return not is_dlq_topic(decode_record(answer.body).topic)
        except (ProtocolError, RemotingError, ResponseError):
            return True  # The broker has confirmed that it is stored.

    async def _send_back(self, place: QueuePlace, message: MessageExt, topic: str) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            phy_offset=message.phy_offset,
            group=self._group,
            delay_level=_FIRST_DELAY_LEVEL,
            origin_msg_id=message.msg_id,
            origin_topic=topic,
            max_reconsume_times=message.reconsume_times + 1,
        )
        await self._admin.api.send_back(place.address, header)
        self._last_returned = message

    async def wait_returned(self) -> None:
        """Wait until the last message taken back by a broker can be found, so that the next run skips it."""
        if self._last_returned is None:
            return
        try:
            async with asyncio.timeout(_RETURN_TIMEOUT_S):
                while not await was_redriven(  # noqa: ASYNC110  # brokers do not notify
                    self._admin, self._group, self._last_returned
                ):
                    await asyncio.sleep(0.2)
        except (TimeoutError, RemotingError, ResponseError):
            return


def copy_of_dead_letter(letter: MessageExt, target: str) -> Message:
    """The copy to send: without the properties of its previous delivery, and with its origin."""
    copy = Message(target, letter.body, flag=letter.flag)
    for name, value in letter.properties.items():
        if name not in _NOT_COPIED:
            copy.put_property(name, value)
    copy.put_property(_UNIQ_KEY, letter.msg_id)
    if is_retry_topic(target):
        copy.put_property(MessageConst.PROPERTY_RETRY_TOPIC, origin_topic(letter) or "")
    else:
        copy.clear_property(MessageConst.PROPERTY_RETRY_TOPIC)
        copy.clear_property(_ORIGIN_ID)
    ancestors = [*_ancestors(letter), letter.offset_msg_id][-_MAX_ANCESTORS:]
    copy.put_property(REDRIVEN_FROM, ",".join(ancestors))
    return copy


def is_copy_of(message: MessageExt, letter: MessageExt) -> bool:
    """Whether a message with the id of a dead letter was redriven from it."""
    if letter.offset_msg_id in _ancestors(message):
        return True
    is_later_retry = is_retry_topic(message.topic) and message.store_timestamp >= letter.store_timestamp
    if not is_later_retry or message.get_property(_ORIGIN_ID) != letter.get_property(_ORIGIN_ID):
        return False
    # Taken back by the broker; or the letter is a copy that a broker gave up at once.
    is_rejected_copy = letter.reconsume_times == 0 and bool(_ancestors(letter))
    return is_rejected_copy or message.reconsume_times == letter.reconsume_times + 1


def _ancestors(message: MessageExt) -> list[str]:
    text = message.get_property(REDRIVEN_FROM)
    return text.split(",") if text else []
