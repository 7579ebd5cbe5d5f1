"""ProducerHook: where an application looks in on what its producer sends.

A hook's methods are called on the producer's loop, once per attempt, and must be quick. What they raise
is logged and changes nothing. Not here: trace and telemetry, which are hooks (producer_trace.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kourou.client.core.settings import check_hooks
from kourou.client.producer.send_result import SendResult
from kourou.client.transactions.transaction_state import TransactionState
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.message import Message, MessageExt

_log = logging.getLogger(__name__)

ContextT = TypeVar("ContextT")


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One attempt to send. `result` and `error` are None before it; of a one-way send, always."""

    producer_group: str
    client_id: str
    messages: Sequence[Message]
    """One, or those of a batch."""
    queue: MessageQueue
    broker_address: str
    attempt: int
    """1 for the first."""
    is_oneway: bool = False
    is_half: bool = False
    result: SendResult | None = None
    error: Exception | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """For the hook's own use, from before to after."""

    @property
    def topic(self) -> str:
        """Where the messages go, without namespace."""
        return self.messages[0].topic


@dataclass(slots=True, kw_only=True)
class EndTransactionContext:
    """A transaction that is about to be ended, by its producer or because a broker asked."""

    producer_group: str
    client_id: str
    message: Message | MessageExt
    msg_id: str
    transaction_id: str | None
    broker_address: str
    state: TransactionState
    from_transaction_check: bool


class ProducerHook:
    """Override what is of interest.

    >>> class Log(ProducerHook):
    ...     def after_send(self, context: SendContext) -> None:
    ...         print(context.topic, context.result or context.error)
    """

    def before_send(self, context: SendContext) -> None:
        """An attempt is about to be made. A message that travels alone may still get user properties."""

    def after_send(self, context: SendContext) -> None:
        """The attempt ended with `context.result` or `context.error`; one-way: it is written."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """A transaction is about to be ended."""


NO_HOOKS: Final[tuple[ProducerHook, ...]] = ()


def checked_hooks(hooks: Sequence[ProducerHook]) -> tuple[ProducerHook, ...]:
    """The same; TypeError for what cannot be called around sends."""
    check_hooks(hooks, ProducerHook)
    return tuple(hooks)


def call_hooks(methods: Sequence[Callable[[ContextT], None]], context: ContextT) -> None:
    """Call each; what one raises is logged."""
    for method in methods:
        try:
            method(context)
        except Exception:
            _log.exception("hook %r failed", method)
