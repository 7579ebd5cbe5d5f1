"""Hooks around handlers: called before and after each one, for tracing, metrics and the like.

A hook is called on the loop and must be quick. One that raises is logged, and consuming goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kourou.client.core.failure_log import FailureLog, kind_of
from kourou.client.core.hook_checks import check_hooks
from kourou.client.push.consume_result import ConsumeResult
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt


@dataclass(slots=True)
class ConsumeHookContext:
    """What a hook sees: the same object before and after a handler."""

    group: str
    queue: MessageQueue
    messages: Sequence[MessageExt]
    result: ConsumeResult | None = None
    """None before, and when the handler was given up."""
    error: BaseException | None = None
    """What the handler raised."""
    is_timeout: bool = False
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    """For the hook's own use, from before to after."""


class ConsumerHook:
    """Override what is of interest.

    >>> class Log(ConsumerHook):
    ...     def after_consume(self, context: ConsumeHookContext) -> None:
    ...         print(context.queue.topic, context.result, context.elapsed_ms)
    """

    def before_consume(self, context: ConsumeHookContext) -> None:
        """A handler is about to be called."""

    def after_consume(self, context: ConsumeHookContext) -> None:
        """It has returned or raised, or was given up."""


def check_consumer_hooks(hooks: Sequence[ConsumerHook]) -> None:
    """TypeError for what cannot be called around handlers."""
    check_hooks(hooks, ConsumerHook)


def call_before(hooks: Sequence[ConsumerHook], context: ConsumeHookContext, failures: FailureLog) -> None:
    """Call all hooks; what they raise is logged."""
    for hook in hooks:
        try:
            hook.before_consume(context)
        except Exception as error:
            failures.warn(("before", id(hook), kind_of(error)), *_words(hook, "before", context), error)


def call_after(hooks: Sequence[ConsumerHook], context: ConsumeHookContext, failures: FailureLog) -> None:
    """Call all hooks; what they raise is logged."""
    for hook in hooks:
        try:
            hook.after_consume(context)
        except Exception as error:
            failures.warn(("after", id(hook), kind_of(error)), *_words(hook, "after", context), error)


def _words(hook: ConsumerHook, when: str, context: ConsumeHookContext) -> tuple[str, str]:
    return f"hook {hook!r} failed {when} consuming", f"message {context.messages[0].msg_id}"
