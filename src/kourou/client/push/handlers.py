"""Handlers: the functions and hooks that a user supplies to consume messages, in all their forms.

A handler takes a message, or a list of them when `batch_size` is above 1; with two required parameters, or
one named `context`, it gets a ConsumeContext too. An `async def` runs on the loop, any other handler in a
thread of the consumer. A hook is called on the loop before and after each handler and must be quick. One that
raises is logged, and consuming continues.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from kourou.client.core.failure_log import FailureLog, kind_of
from kourou.client.core.settings import check_hooks
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from kourou.wording import counted

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
HandlerResult: TypeAlias = ConsumeResult | None
MessageHandler: TypeAlias = (
    Callable[[MessageExt], HandlerResult | Awaitable[HandlerResult]]
    | Callable[[MessageExt, ConsumeContext], HandlerResult | Awaitable[HandlerResult]]
    | Callable[[list[MessageExt]], HandlerResult | Awaitable[HandlerResult]]
    | Callable[[list[MessageExt], ConsumeContext], HandlerResult | Awaitable[HandlerResult]]
)
"""The handlers that `subscribe` accepts."""
_ONE_MESSAGE: Final = "kourou_takes_one_message"


@dataclass(frozen=True, slots=True)
class Handler:
    """A user's function, and how to call it."""

    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    takes_one_message: bool = False
    """Whether it cannot be given a list."""

    @property
    def name(self) -> str:
        return _name_of(self.function)


def handler_of(function: MessageHandler) -> Handler:
    """Inspect a user's function; TypeError when it cannot take a message."""
    if not callable(function):
        raise TypeError(f"a handler is a function of a message, not {type(function).__name__}")
    return Handler(function, _is_async(function), _takes_context(function), _takes_one_message(function))


def only_one_message(function: FunctionT) -> FunctionT:
    """Mark a handler that cannot be given a list of messages."""
    setattr(function, _ONE_MESSAGE, True)
    return function


def check_batch_size(handler: Handler, batch_size: int) -> None:
    """TypeError for a handler of single messages that would be given lists."""
    if batch_size > 1 and handler.takes_one_message:
        raise TypeError(
            f"{handler.name} is @idempotent and takes one message, and batch_size is {batch_size}: consume "
            "with batch_size=1, or call it for each message from a handler of lists"
        )


def checked_result(result: object, handler: Handler) -> ConsumeResult:
    """The result of a handler; TypeError for any other value."""
    if result is None:
        return ConsumeResult.SUCCESS
    if isinstance(result, ConsumeResult):
        return result
    raise TypeError(
        f"handler {handler.name} returned {result!r:.100}; it returns a ConsumeResult, or None for success"
    )


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 (the method itself is inspected)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _takes_one_message(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, _ONE_MESSAGE, False)


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-ins have no signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    is_starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if not positional and not is_starred or len(required) > 2:
        count = counted(len(required), "argument") if required else "no argument"
        raise TypeError(
            f"handler {_name_of(function)}() takes {count}; it must take the message, and may take a "
            "ConsumeContext as second"
        )
    return len(required) == 2 or (len(positional) > 1 and positional[1].name == "context")


@dataclass(slots=True)
class ConsumeHookContext:
    """The argument of a hook: the same object before and after a handler."""

    group: str
    queue: MessageQueue
    messages: Sequence[MessageExt]
    result: ConsumeResult | None = None
    """None before the call, and when the handler was cancelled at the stop."""
    error: BaseException | None = None
    """The handler's exception."""
    is_timeout: bool = False
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    """For the hook's own data, kept from `before_consume` to `after_consume`."""


class ConsumerHook:
    """Base class of hooks; override the methods that you need.

    >>> class Log(ConsumerHook):
    ...     def after_consume(self, context: ConsumeHookContext) -> None:
    ...         print(context.queue.topic, context.result, context.elapsed_ms)
    """

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Called before a handler."""

    def after_consume(self, context: ConsumeHookContext) -> None:
        """Called after it has returned, raised or been cancelled."""


def check_consumer_hooks(hooks: Sequence[ConsumerHook]) -> None:
    """TypeError for an object that is not a consumer hook."""
    check_hooks(hooks, ConsumerHook)


def call_before(hooks: Sequence[ConsumerHook], context: ConsumeHookContext, failures: FailureLog) -> None:
    """Call all hooks; exceptions are logged."""
    for hook in hooks:
        try:
            hook.before_consume(context)
        except Exception as error:
            failures.warn(("before", id(hook), kind_of(error)), *_describe(hook, "before", context), error)


def call_after(hooks: Sequence[ConsumerHook], context: ConsumeHookContext, failures: FailureLog) -> None:
    """Call all hooks; exceptions are logged."""
    for hook in hooks:
        try:
            hook.after_consume(context)
        except Exception as error:
            failures.warn(("after", id(hook), kind_of(error)), *_describe(hook, "after", context), error)


def _describe(hook: ConsumerHook, when: str, context: ConsumeHookContext) -> tuple[str, str]:
    return f"hook {hook!r} failed {when} consuming", f"message {context.messages[0].msg_id}"
