"""Requests to brokers about messages that clients hold, and receipt handles as clients see them.

A handle of a gRPC client is that of POP with the message's place in the log behind it: a message can then be
moved to the dead letters by its handle alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from kourou.client.pop.pop_calls import changed_handle
from kourou.errors import KourouError, ProtocolError, ResponseError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import topic_of_kind
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code

_log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS: Final = 3_000
_LOG_FIELD: Final = 8
_MAX_DIGITS: Final = 19
# Answers to a handle with which nothing can be done any more. A client repeats a failed ack every second,
# without end, unless its status says so.
_HOPELESS: Final = frozenset(
    {
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.NO_MESSAGE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    }
)


class ClientHandle(NamedTuple):
    """A handle as a client shows it."""

    receipt: ReceiptHandle
    phy_offset: int
    """The message's place in the log; -1 if the handle does not name it."""


def client_handle(receipt: ReceiptHandle, phy_offset: int) -> str:
    """A handle for a client."""
    return f"{receipt.encode()} {phy_offset}"


def read_handle(text: str) -> ClientHandle:
    """Read a handle. StatusError: it is none."""
    try:
        receipt = ReceiptHandle.decode(text)
    except ProtocolError as error:
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, str(error)) from error
    fields = text.split(" ", _LOG_FIELD + 1)
    place = fields[_LOG_FIELD] if len(fields) > _LOG_FIELD else ""
    is_number = place.isascii() and place.isdigit() and len(place) <= _MAX_DIGITS
    return ClientHandle(receipt, int(place) if is_number else -1)


def expired() -> StatusError:
    """The error for a handle whose time is over."""
    return StatusError(
        Code.INVALID_RECEIPT_HANDLE,
        "the receipt handle has expired: the message is delivered again, or was already",
    )


def handle_error(code: int, remark: str, broker_name: str) -> KourouError:
    """The error for a broker's answer to a request with a handle."""
    if code in _HOPELESS:
        return StatusError(Code.INVALID_RECEIPT_HANDLE, remark)
    return ResponseError(code, remark, broker_name)


def ack_request(handle: ReceiptHandle, topic: str, group: str) -> RemotingCommand:
    """Acknowledge a message. `topic` is the one that the client subscribes to."""
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=topic_of_kind(topic, group, handle.kind),
        queue_id=handle.queue_id,
        extra_info=handle.encode(),
        queue_offset=handle.queue_offset,
    )
    return RemotingCommand.request(RequestCode.ACK_MESSAGE, header)


def change_request(
    handle: ReceiptHandle, topic: str, group: str, invisible_ms: int, *, suspend: bool | None = None
) -> RemotingCommand:
    """Have a message be invisible for that time from now."""
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=topic_of_kind(topic, group, handle.kind),
        queue_id=handle.queue_id,
        extra_info=handle.encode(),
        queue_offset=handle.queue_offset,
        invisible_time=invisible_ms,
        suspend=suspend,
    )
    return RemotingCommand.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)


def handle_after_change(handle: ReceiptHandle, head: CommandHead) -> ReceiptHandle:
    """The handle after a change that succeeded: of a check point of this message alone."""
    changed = decode_ext(head, ChangeInvisibleTimeResponseHeader)
    if not changed.pop_time:  # it is acknowledged already, and has no new one
        return handle
    return changed_handle(handle, changed)


class OnResponse:
    """Calls a function with the head and body of a response, another with the failure of the call (the
    AnswerSink of a link). What they raise is logged."""

    __slots__ = ("_failed", "_received")

    def __init__(
        self, received: Callable[[CommandHead, bytes], None], failed: Callable[[Exception], None]
    ) -> None:
        self._received = received
        self._failed = failed

    def done(self) -> bool:
        """False: every response is looked at."""
        return False

    def set_answer(self, head: CommandHead, body: bytes, /) -> None:
        """The response has arrived."""
        try:
            self._received(head, body)
        except Exception as error:
            self.set_exception(error)

    def set_exception(self, error: Exception, /) -> None:
        """There is none, or it cannot be read."""
        try:
            self._failed(error)
        except Exception:
            _log.exception("a failure is not handled: %s", error)
