"""Outcomes of sends: acknowledged, definitely not stored, or unknown.

Only SEND_OK is an acknowledgement. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE say that
the master has the message, and not that it will keep it: unknown.

An attempt that failed is *unsure* unless the broker cannot have stored the message by it. Not stored:

- no connection, no route, too many requests in flight: nothing was written;
- MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST, FLOW_CONTROL: checks before the put;
- SYSTEM_BUSY: too much waits for the disk, also before the put; for an idempotent repeat, the original is
  undecided and this attempt has put nothing;
- SYSTEM_ERROR with "in-sync replicas not enough": the admission check; "refused, and nothing is stored" is
  what `minInSyncReplicas` promises;
- KOUROU_NOT_STORED, KOUROU_DISK_FULL: their purpose is to say so;
- a refused sequence, except for SEQUENCE_TOO_OLD.

Unsure:

- SERVICE_NOT_AVAILABLE: CommitCycle answers it for batches that were written and then given up, when a sync
  has failed or the master was fenced; their bytes may be on disk, or at a replica that becomes master. The
  same code is given before a put, and the two cannot be distinguished;
- any other SYSTEM_ERROR: an exception after the put is answered so, too;
- KOUROU_SEQUENCE_TOO_OLD: an earlier attempt may have stored it;
- no answer in time, a lost connection, anything unexpected.

An atomic publish is unknown if its commit was not answered, or was answered with KOUROU_ATOMIC_TOO_OLD; after
any other error nothing is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kourou.client import ProducerHook, SendContext
from kourou.errors import (
    AtomicUndecidedError,
    ConnectError,
    MessageRefusedError,
    NoRouteError,
    ProtocolError,
    ResponseError,
    SendFailedError,
    TooManyRequestsError,
)
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import Message
from kourou.store.log.put_status import PutStatus
from tests.failover.history import Outcome

_NOT_STORED: Final = frozenset(
    {
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.KOUROU_NOT_STORED,
        ResponseCode.KOUROU_DISK_FULL,
        ResponseCode.KOUROU_PRODUCER_FENCED,
        ResponseCode.KOUROU_UNKNOWN_PRODUCER,
        ResponseCode.KOUROU_UNKNOWN_EPOCH,
        ResponseCode.KOUROU_SEQUENCE_JUMP,
    }
)
_NOT_ENOUGH: Final = PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH


def is_unsure(error: BaseException) -> bool:
    """Whether an attempt that ended so may have stored its message."""
    if isinstance(error, ResponseError):
        is_refused = error.code == _NOT_ENOUGH.response_code and error.remark.startswith(_NOT_ENOUGH.remark)
        return error.code not in _NOT_STORED and not is_refused
    return not isinstance(error, ConnectError | NoRouteError | TooManyRequestsError | MessageRefusedError)


@dataclass(slots=True)
class Attempts:
    """What became of the attempts of one send."""

    unsure: int = 0
    address: str | None = None
    """Of the broker that answered last."""


class AttemptHook(ProducerHook):
    """Notes the attempts of sends, by the bodies of their messages: a client reports only how the last one
    ended."""

    def __init__(self) -> None:
        self._sends: dict[bytes, Attempts] = {}

    def expect(self, messages: Sequence[Message]) -> Attempts:
        """The attempts of a send that begins now."""
        attempts = Attempts()
        for message in messages:
            self._sends[message.body] = attempts
        return attempts

    def forget(self, messages: Sequence[Message]) -> None:
        """The send is over."""
        for message in messages:
            self._sends.pop(message.body, None)

    def before_send(self, context: SendContext) -> None:
        """An attempt begins: unsure, until its end is known."""
        if (attempts := self._sends.get(context.messages[0].body)) is not None:
            attempts.unsure += 1

    def after_send(self, context: SendContext) -> None:
        """An attempt has ended."""
        attempts = self._sends.get(context.messages[0].body)
        if attempts is None:
            return
        if context.result is not None:
            attempts.address = context.broker_address
            attempts.unsure -= context.result.is_ok
        elif context.error is not None:
            attempts.unsure -= not is_unsure(context.error)


def outcome_of(error: BaseException, attempts: Attempts) -> Outcome:
    """The outcome of a send that raised."""
    if isinstance(error, MessageRefusedError):
        return "failed"
    if attempts.unsure or getattr(error, "may_be_stored", False):
        return "unknown"
    return "failed" if isinstance(error, SendFailedError | ResponseError | NoRouteError) else "unknown"


def publish_outcome(error: Exception) -> Outcome:
    """The outcome of an atomic publish whose block raised."""
    is_too_old = isinstance(error, ResponseError) and error.code == ResponseCode.KOUROU_ATOMIC_TOO_OLD
    is_unknown = is_too_old or isinstance(error, AtomicUndecidedError | ProtocolError | TimeoutError)
    return "unknown" if is_unknown else "failed"
