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
_BINDING: Final = "kourou_offset_binding"
NEEDS_OFFSETS: Final = (
    "without keys, repeats are found by their offsets only; consume with orderly=True, offsets=store"
)


@dataclass(frozen=True, slots=True)
class Handler:
    """A user's function, and how to call it."""

    function: Callable[..., Any]
    is_async: bool
    takes_context: bool

    @property
    def name(self) -> str:
        return _name_of(self.function)


def handler_of(function: MessageHandler) -> Handler:
    """Inspect a user's function; TypeError when it cannot take a message."""
    if not callable(function):
        raise TypeError(f"a handler is a function of a message, not {type(function).__name__}")
    return Handler(function, is_async_function(function), _takes_context(function))


@dataclass(frozen=True, slots=True)
class OffsetBinding:
    """How a handler stores the offsets of its messages in its own transaction."""

    store: object
    needs_offsets: bool
    """Whether it recognises repeats by nothing else."""
    bind: Callable[[str], Callable[..., Any]]
    """Returns the handler that stores the offsets of a group."""


def bindable(function: FunctionT, binding: OffsetBinding) -> FunctionT:
    """Mark a handler that can store offsets."""
    setattr(function, _BINDING, binding)
    return function


def bound_handler(function: MessageHandler, offsets: object | None, group: str) -> MessageHandler:
    """The handler that stores the group's offsets in `offsets`; the same one if that is None. TypeError if
    it cannot."""
    binding: OffsetBinding | None = getattr(function, _BINDING, None)
    if offsets is None:
        if binding is not None and binding.needs_offsets:
            raise TypeError(f"{_name_of(function)} has key=None: {NEEDS_OFFSETS}")
        return function
    if binding is None or binding.store is not offsets:
        raise TypeError(
            f"{_name_of(function)} does not store the offsets of this consumer: with offsets=store, "
            "subscribe the function that is decorated by @idempotent(store=store) itself, with that store"
        )
    return binding.bind(group)


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


def is_async_function(function: Callable[..., Any]) -> bool:
    """Whether calls return coroutines: of an `async def`, or an object with an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 (the method itself is inspected)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


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
