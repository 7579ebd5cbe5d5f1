"""Handlers around a transactional store: their work and the keys of their messages are one transaction.

A handler gets the message, or the list of those messages that are new, the connection, and as third argument
the ConsumeContext if it takes one. A batch is consumed as a whole or not at all.

With a consumer that keeps its offsets in the store (`offsets=store`), `subscribe` binds the handler to the
consumer's group: then the offset of the messages is part of the same transaction.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from kourou.client.idempotence.inbox import Position
from kourou.client.idempotence.store_protocols import KeyedMessage, means_done
from kourou.client.push.consume_result import ConsumeContext
from kourou.client.push.handlers import NEEDS_OFFSETS, OffsetBinding, bindable, is_async_function

NameOf = Callable[[KeyedMessage], str]


def in_transaction(
    handler: Callable[..., Any], store: Any, name_of: NameOf | None, name: str
) -> Callable[..., Any]:
    """The handler for a consumer. Without `name_of` messages have no keys, only offsets."""
    is_async_store = inspect.iscoroutinefunction(store.run_batch)
    if is_async_function(handler) and not is_async_store:
        raise TypeError(
            f"{name} is async, and {type(store).__name__} blocks; make it a sync function, or use "
            "AsyncDbApiStore or AsyncSqlAlchemyStore"
        )
    if is_async_store and not is_async_function(handler):
        raise TypeError(
            f"{name} is a sync function, and {type(store).__name__} is for async ones; make it `async def`, "
            "or use DbApiStore or SqlAlchemyStore"
        )
    calls = _Transactions(handler, store, name_of, name)
    # Cached: a topic that is subscribed to again has the same handler.
    bound = functools.cache(functools.partial(_bound, calls, is_async_store))
    return bindable(bound(None), OffsetBinding(store, needs_offsets=name_of is None, bind=bound))


def _bound(calls: _Transactions, is_async: bool, group: str | None) -> Callable[..., Any]:
    def handle_once(message: Any, context: ConsumeContext | None = None) -> Any:
        return calls.run(message, context, group)

    async def handle_once_async(message: Any, context: ConsumeContext | None = None) -> Any:
        return await calls.run(message, context, group)

    handle = handle_once_async if is_async else handle_once
    # Not `wraps`: the consumer's handler takes the message, not the connection.
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(calls.handler, name) and name != "__annotations__":
            setattr(handle, name, getattr(calls.handler, name))
    return handle


class _Transactions:
    """One handler with its store."""

    def __init__(self, handler: Callable[..., Any], store: Any, name_of: NameOf | None, name: str) -> None:
        self.handler = handler
        self._store = store
        self._name_of = name_of
        self._name = name
        self._takes_context = _takes_context(handler, name)

    def run(self, message: Any, context: ConsumeContext | None, group: str | None) -> Any:
        """Run one transaction; an awaitable of its result if the store is async."""
        batch = message if isinstance(message, list) else [message]
        keys = [] if self._name_of is None else [self._name_of(each) for each in batch]
        position = None
        if group is not None and context is not None:
            position = Position(group, context.queue, [each.queue_offset for each in batch])
        if not keys and position is None:
            raise TypeError(f"{self._name} has key=None: {NEEDS_OFFSETS}")
        work = functools.partial(self._work, message, context)
        if inspect.iscoroutinefunction(self._store.run_batch):
            work = functools.partial(self._work_async, message, context)
        return self._store.run_batch(keys, work, means_done, position)

    def _work(self, message: Any, context: ConsumeContext | None, connection: Any, fresh: list[int]) -> Any:
        try:
            result = self.handler(*self._arguments(message, context, connection, fresh))
        finally:
            given = _taken_ack_index(context)
        self._refuse_parts(given)
        return result

    async def _work_async(
        self, message: Any, context: ConsumeContext | None, connection: Any, fresh: list[int]
    ) -> Any:
        try:
            result = await self.handler(*self._arguments(message, context, connection, fresh))
        finally:
            given = _taken_ack_index(context)
        self._refuse_parts(given)
        return result

    def _arguments(
        self, message: Any, context: ConsumeContext | None, connection: Any, fresh: list[int]
    ) -> tuple[Any, ...]:
        new = [message[each] for each in fresh] if isinstance(message, list) else message
        return (new, connection, context) if self._takes_context else (new, connection)

    def _refuse_parts(self, ack_index: int | None) -> None:
        if ack_index is not None:
            raise TypeError(
                f"{self._name} set ack_index, but a transaction is consumed as a whole; it is rolled back"
            )


def _taken_ack_index(context: ConsumeContext | None) -> int | None:
    """`ack_index`, which is cleared: the consumer must not count messages whose work is rolled back."""
    if context is None:
        return None
    given, context.ack_index = context.ack_index, None
    return given


def _takes_context(handler: Callable[..., Any], name: str) -> bool:
    """Whether the handler takes a third argument; TypeError if it does not take two or three."""
    parameters = list(inspect.signature(handler).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    is_starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if (len(positional) < 2 and not is_starred) or len(required) > 3:
        raise TypeError(
            f"{name} must take the message and the connection of the store's transaction, and may take a "
            "ConsumeContext as third"
        )
    return len(required) == 3 or (len(positional) > 2 and positional[2].name == "context")
