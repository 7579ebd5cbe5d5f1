"""ProducerHook: lets an application observe what its producer sends.

A hook's methods are called on the producer's loop, `prepare` once per send and the others once per attempt,
and must be quick. Their exceptions are logged at a bounded rate and change nothing. Not here: trace and
telemetry, which are hooks (producer_trace.py, otel.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kourou.client.core.failure_log import FailureLog, kind_of
from kourou.client.core.settings import check_hooks
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.send_result import SendResult
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.message import Message, MessageExt


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One attempt to send. `result` and `error` are None before it, and always for a one-way send."""

    producer_group: str
    client_id: str
    messages: Sequence[Message]
    """One message, or those of a batch."""
    queue: MessageQueue
    broker_address: str
    attempt: int
    """The number of the attempt, from 1."""
    is_oneway: bool = False
    is_half: bool = False
    result: SendResult | None = None
    error: Exception | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """For the hook's own data, kept from `before_send` to `after_send`."""

    @property
    def topic(self) -> str:
        """The topic of the messages, without namespace."""
        return self.messages[0].topic


@dataclass(slots=True, kw_only=True)
class EndTransactionContext:
    """A transaction that is about to be ended, by its producer or in response to a broker's check."""

    producer_group: str
    client_id: str
    message: Message | MessageExt
    msg_id: str
    transaction_id: str | None
    broker_address: str
    state: TransactionState
    from_transaction_check: bool

    @property
    def topic(self) -> str:
        """The topic of the message, without namespace."""
        return self.message.topic


ContextT = TypeVar("ContextT", SendContext, EndTransactionContext)


class ProducerHook:
    """Base class of hooks; override the methods that you need.

    >>> class Log(ProducerHook):
    ...     def after_send(self, context: SendContext) -> None:
    ...         print(context.topic, context.result or context.error)
    """

    def prepare(self, messages: Sequence[Message]) -> None:
        """Called before messages are encoded, with the context variables of the caller of `send`, `send_many`
        or another method: one message, or all of `send_many`. All may still get user properties."""

    def before_send(self, context: SendContext) -> None:
        """Called before an attempt. A message that is not in a batch may still get user properties."""

    def after_send(self, context: SendContext) -> None:
        """Called after an attempt, with `context.result` or `context.error`; one-way: after it is written."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Called before a transaction is ended."""


NO_HOOKS: Final[tuple[ProducerHook, ...]] = ()


def checked_hooks(hooks: Sequence[ProducerHook]) -> tuple[ProducerHook, ...]:
    """The hooks as a tuple; TypeError for an object that is not a producer hook."""
    check_hooks(hooks, ProducerHook, optional=("prepare",))
    return tuple(hooks)


def call_hooks(
    methods: Sequence[Callable[[ContextT], None]], context: ContextT, failures: FailureLog
) -> None:
    """Call each; exceptions are logged at a bounded rate."""
    for method in methods:
        try:
            method(context)
        except Exception as error:
            failures.warn(
                (method, kind_of(error)), f"hook {method!r} failed", f"topic {context.topic}", error
            )


class Preparation:
    """The `prepare` methods of a producer's hooks."""

    def __init__(self, hooks: Sequence[ProducerHook], failures: FailureLog) -> None:
        # An object need not be derived from ProducerHook.
        self._methods: list[Callable[[Sequence[Message]], None]] = [
            hook.prepare
            for hook in hooks
            if getattr(type(hook), "prepare", ProducerHook.prepare) is not ProducerHook.prepare
        ]
        self._failures = failures

    def __bool__(self) -> bool:
        """Whether a hook has the method."""
        return bool(self._methods)

    def __call__(self, messages: Sequence[Message]) -> None:
        """Call each; exceptions are logged at a bounded rate."""
        for method in self._methods:
            try:
                method(messages)
            except Exception as error:
                topic = getattr(messages[0], "topic", None)
                self._failures.warn(
                    (method, kind_of(error)), f"hook {method!r} failed", f"topic {topic}", error
                )
