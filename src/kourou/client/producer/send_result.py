"""SendResult: where a broker stored a message; and the recall handle in it.

A recall handle is URL-safe Base64 of `v1 <topic> <brokerName> <timestamp> <UNIQ_KEY>`.
Not here: the error when no broker stored it (errors.py: SendFailedError), the requests (send_request.py).
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from kourou.errors import HeaderFieldError
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import CommandHead, decode_ext
from kourou.protocol.headers.send import SendMessageResponseHeader


class SendStatus(enum.Enum):
    """How safely a message is stored; RocketMQ's names.

    Other than SEND_OK: the broker has stored the message, but did not flush or replicate it within the time
    that it is configured to wait.
    """

    SEND_OK = enum.auto()
    FLUSH_DISK_TIMEOUT = enum.auto()
    FLUSH_SLAVE_TIMEOUT = enum.auto()
    SLAVE_NOT_AVAILABLE = enum.auto()


SEND_STATUSES: Final[dict[int, SendStatus]] = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
"""The response codes of a stored message."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message is stored. `msg_id` is the id that consumers see, `offset_msg_id` locates the record.
    For a repeat of an idempotent producer, all are those of the original.

    `recall_handle` recalls a timer message before its time; None for all other messages.
    """

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True

    @property
    def is_ok(self) -> bool:
        """Whether the message is as safe as the broker is configured to make it."""
        return self.status is SendStatus.SEND_OK


class RepeatedBatchResult(SendResult, frozen=True, gc=False):
    """Of a batch some of whose messages were stored before: what is known of each."""

    original_ids: tuple[str, ...] = ()
    """Empty texts for new messages."""
    queue_offsets: tuple[int, ...] = ()


def send_result(
    answer: CommandHead, status: SendStatus, queue: MessageQueue, msg_id: str, topic: str
) -> SendResult:
    """The result in the response for a stored message; `topic` is the user's name. HeaderFieldError if the
    position is missing."""
    header = decode_ext(answer, SendMessageResponseHeader)
    if header.queue_id != queue.queue_id or topic != queue.topic:
        queue = MessageQueue(topic, queue.broker_name, header.queue_id)
    result = SendResult(
        status,
        msg_id,
        queue,
        header.queue_offset,
        header.msg_id,
        header.transaction_id,
        header.recall_handle,
        header.msg_region or "DefaultRegion",
        header.trace_on is not False,
    )
    return result if header.kourou_msg_ids is None else _repeated(result, header)


def _repeated(result: SendResult, header: SendMessageResponseHeader) -> SendResult:
    """The result with what is known of originals."""
    ids = header.kourou_msg_ids or result.msg_id
    if header.kourou_queue_offsets is None:
        return msgspec.structs.replace(result, msg_id=ids)
    try:
        queue_offsets = tuple(map(int, header.kourou_queue_offsets.split(",")))
    except ValueError:
        text = header.kourou_queue_offsets[:100]
        raise HeaderFieldError(
            "SendMessageResponseHeader", f"kourouQueueOffsets={text!r} must be numbers joined by commas"
        ) from None
    return RepeatedBatchResult(
        **msgspec.structs.asdict(result), original_ids=tuple(ids.split(",")), queue_offsets=queue_offsets
    )


def split_result(batch: SendResult, msg_ids: list[str]) -> list[SendResult]:
    """The results of the messages of a batch, in order: a broker stores them consecutively, except those that
    it has already."""
    offset_ids = batch.offset_msg_id.split(",")
    if len(offset_ids) != len(msg_ids):  # stored as one record (a topic with queue.type=BatchCQ)
        offset_ids = [batch.offset_msg_id] * len(msg_ids)
    queue_offsets: Sequence[int] = range(batch.queue_offset, batch.queue_offset + len(msg_ids))
    if isinstance(batch, RepeatedBatchResult) and len(batch.queue_offsets) == len(msg_ids):
        queue_offsets = batch.queue_offsets
        if len(batch.original_ids) == len(msg_ids):  # none has a comma in it
            msg_ids = [
                original_id or own for original_id, own in zip(batch.original_ids, msg_ids, strict=True)
            ]
    return [
        SendResult(
            batch.status,
            msg_id,
            batch.queue,
            queue_offset,
            offset_id,
            region_id=batch.region_id,
            trace_on=batch.trace_on,
        )
        for msg_id, queue_offset, offset_id in zip(msg_ids, queue_offsets, offset_ids, strict=True)
    ]


def broker_of_handle(recall_handle: str) -> str:
    """The name of the broker that issued the handle; ValueError for any other text.

    >>> import base64
    >>> broker_of_handle(base64.urlsafe_b64encode(b"v1 Orders broker-a 1700000000000 7F00").decode())
    'broker-a'
    """
    try:
        padded = recall_handle + "=" * (-len(recall_handle) % 4)
        words = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        words = []
    if len(words) != 5 or words[0] != "v1" or not words[2]:
        raise ValueError(
            f"{recall_handle[:100]!r} is not a recall handle; use SendResult.recall_handle of a message that "
            "was sent with delay_time_ms or deliver_time_ms"
        )
    return words[2]
