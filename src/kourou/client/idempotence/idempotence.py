"""@idempotent: makes a handler do its work once for each business event, however often it is delivered.

A message can be delivered twice because its send was repeated after a lost response (then with two unique
ids), because an acknowledgement was lost, or because a queue moved to another consumer. So messages are
identified by their business key, and finished keys are kept in a store (idempotence_stores.py):

    new ── claim ──► in progress ── finish ──► done      done: the message is skipped
     ▲                   │                               in progress: MessageInProgressError, delivered again
     └──── release ◄─────┘ the handler failed, or its lease expired because its process died

A crash between the handler's last effect and `finish` still repeats the message. To exclude that, put the
effect and the key into one transaction of one database (idempotence_database.py).

Handlers of batches get the messages that are new. With an orderly consumer a failure suspends the queue, as
without the decorator.
Not here: the stores (idempotence_stores.py), claims (claims.py), transactions (inbox_handlers.py).
"""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

from kourou.client.idempotence.claims import ClaimedHandler
from kourou.client.idempotence.inbox_handlers import in_transaction
from kourou.client.idempotence.store_protocols import (
    AsyncTransactionalStore,
    IdempotenceStore,
    KeyedMessage,
    TransactionalStore,
)
from kourou.client.push.consume_result import ConsumeContext
from kourou.client.push.handlers import is_async_function
from kourou.errors import NoBusinessKeyError
from kourou.protocol.names import is_dlq_topic, is_retry_topic
from kourou.protocol.properties import KEY_SEPARATOR, MessageConst

DEFAULT_LEASE_SECONDS: Final = 900.0
"""As long as a handler may take by default (`consumeTimeout`, 15 minutes)."""
# Fits any store; longer keys are hashed.
_MAX_KEY_CHARACTERS: Final = 250

P = ParamSpec("P")
R = TypeVar("R")
C_co = TypeVar("C_co", covariant=True)


M = TypeVar("M", bound=KeyedMessage | Sequence[KeyedMessage])


def business_key(message: KeyedMessage) -> str:
    """The keys of the message; NoBusinessKeyError if it has none."""
    if not message.keys:
        raise _no_key(message)
    return KEY_SEPARATOR.join(message.keys)


def unique_id_key(message: KeyedMessage) -> str:
    """The unique id that the producer's client gave the message.

    A send that the application repeats has another id: this identifies messages, not business events.
    """
    unique_id = message.get_property(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    if not unique_id:
        raise _no_key(message)
    return unique_id


class HandlerDecorator(Protocol):
    """Decorates a sync or async handler of a message, or of a list of them."""

    @overload
    def __call__(
        self, handler: Callable[Concatenate[M, P], Coroutine[Any, Any, R]], /
    ) -> Callable[Concatenate[M, P], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[M, P], R], /
    ) -> Callable[Concatenate[M, P], R | None]: ...


class TransactionDecorator(Protocol[C_co]):
    """Decorates a sync handler of a message, or of a list of them, and a connection."""

    @overload
    def __call__(self, handler: Callable[[M, C_co], R], /) -> Callable[[M], R | None]: ...
    @overload
    def __call__(
        self, handler: Callable[[M, C_co, ConsumeContext], R], /
    ) -> Callable[[M, ConsumeContext], R | None]: ...


class AsyncTransactionDecorator(Protocol[C_co]):
    """The same for an async handler."""

    @overload
    def __call__(
        self, handler: Callable[[M, C_co], Coroutine[Any, Any, R]], /
    ) -> Callable[[M], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(
        self, handler: Callable[[M, C_co, ConsumeContext], Coroutine[Any, Any, R]], /
    ) -> Callable[[M, ConsumeContext], Coroutine[Any, Any, R | None]]: ...


@overload
def idempotent(
    *,
    store: AsyncTransactionalStore[C_co],
    key: Callable[[Any], str] | None = ...,
    scope: str | None = ...,
) -> AsyncTransactionDecorator[C_co]: ...
@overload
def idempotent(
    *,
    store: TransactionalStore[C_co],
    key: Callable[[Any], str] | None = ...,
    scope: str | None = ...,
) -> TransactionDecorator[C_co]: ...
@overload
def idempotent(
    *,
    store: IdempotenceStore,
    key: Callable[[Any], str] = ...,
    scope: str | None = ...,
    lease_seconds: float = ...,
) -> HandlerDecorator: ...
def idempotent(
    *handler: object,
    store: IdempotenceStore | TransactionalStore[Any] | AsyncTransactionalStore[Any] | None = None,
    key: Callable[[Any], str] | None = business_key,
    scope: str | None = None,
    lease_seconds: float = DEFAULT_LEASE_SECONDS,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a handler do its work once for each key.

    >>> from kourou import Message
    >>> from kourou.client import MemoryStore
    >>> @idempotent(store=MemoryStore(), scope="billing")
    ... def charge(message):
    ...     print("charged for", message.keys[0])
    >>> charge(Message("Orders", b"{}", keys=["order-1"]))
    charged for order-1
    >>> charge(Message("Orders", b"{}", keys=["order-1"]))

    The handler may be `async`; then a store that blocks is called in threads. If it raises, or returns
    anything but None or SUCCESS, the key is released, so that the next delivery is handled. Skipped messages
    count as consumed. A handler of batches gets a list of the messages that are new.

    With a store in a database (DbApiStore, SqlAlchemyStore and their async twins) the handler's second
    argument is the connection, in the transaction that stores the key.

    `key` returns the business key of a message: by default its keys. `scope` distinguishes handlers that
    share a store, and should be the consumer group; by default it is the handler's name, so that renaming the
    function forgets what was done. The topic is part of the stored key as well. `key=None` stores no keys:
    then repeats are found by their offsets, for a consumer with `orderly=True, offsets=store`. A process that
    dies in a handler holds the key for `lease_seconds`, which must be longer than any handler takes.
    """
    if handler or store is None:
        raise TypeError(
            "idempotent needs a store: write @idempotent(store=...), "
            "for example with MemoryStore() of kourou.client"
        )
    if key is unique_id_key:
        warnings.warn(
            "messages are identified by their unique ids: a business event that is sent twice has two ids, "
            "and is handled twice; send it with keys, and leave out key=unique_id_key",
            stacklevel=2,
        )
    is_transactional = hasattr(store, "run_batch")
    if key is None and not is_transactional:
        raise TypeError("key=None needs a store that keeps offsets too, such as DbApiStore")
    if lease_seconds <= 0:
        raise ValueError(f"lease_seconds is {lease_seconds}; it must be above 0")

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        name = _name_of(handler)
        name_of = None if key is None else functools.partial(_stored_key, scope or name, key)
        if is_transactional:
            return in_transaction(handler, store, name_of, name)
        assert name_of is not None
        claimed = ClaimedHandler(store, name_of, lease_seconds)  # type: ignore[arg-type]
        is_async = is_async_function(handler)
        return claimed.around_async(handler) if is_async else claimed.around_sync(handler)

    return decorate


def _stored_key(scope: str, key: Callable[[Any], str], message: KeyedMessage) -> str:
    text = f"{scope}/{_own_topic(message)}/{key(message)}"
    if len(text) <= _MAX_KEY_CHARACTERS:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _own_topic(message: KeyedMessage) -> str:
    """The topic that the message was sent to, for a retry too."""
    if is_retry_topic(message.topic) or is_dlq_topic(message.topic):
        return message.get_property(MessageConst.PROPERTY_RETRY_TOPIC) or message.topic
    return message.topic


def _no_key(message: KeyedMessage) -> NoBusinessKeyError:
    unique_id = message.get_property(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    return NoBusinessKeyError(message.topic, unique_id or "(without an id)")


def _name_of(handler: Callable[..., Any]) -> str:
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{named.__module__}.{named.__qualname__}"
