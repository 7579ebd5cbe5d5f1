"""@idempotent: makes a handler do its work once for each business event, however often it is delivered.

A message can be delivered twice because its send was repeated after a lost response (then with two unique
ids), because an acknowledgement was lost, or because a queue moved to another consumer. So messages are
identified by their business key, and finished keys are kept in a store (idempotence_stores.py):

    new ── claim ──► in progress ── finish ──► done      done: the message is skipped
     ▲                   │                               in progress: MessageInProgressError, delivered again
     └──── release ◄─────┘ the handler failed, or its lease expired because its process died

A crash between the handler's last effect and `finish` still repeats the message. To exclude that, put the
effect and the key into one transaction of one database: DbApiStore.
Not here: the stores themselves.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import hashlib
import logging
import uuid
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeGuard, TypeVar, cast, overload

from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.handlers import handler_of, only_one_message
from kourou.errors import MessageInProgressError, NoBusinessKeyError
from kourou.protocol.names import is_dlq_topic, is_retry_topic
from kourou.protocol.properties import KEY_SEPARATOR, MessageConst

_log = logging.getLogger(__name__)

DEFAULT_LEASE_SECONDS: Final = 900.0
"""As long as a handler may take by default (`consumeTimeout`, 15 minutes)."""
# Fits any store; longer keys are hashed.
_MAX_KEY_CHARACTERS: Final = 250

P = ParamSpec("P")
R = TypeVar("R")
C_co = TypeVar("C_co", covariant=True)


class KeyedMessage(Protocol):
    """The attributes of a message that are used: Message and MessageExt have them."""

    topic: str

    @property
    def keys(self) -> tuple[str, ...]: ...

    def get_property(self, name: str) -> str | None: ...


M = TypeVar("M", bound=KeyedMessage)


class Claim(enum.Enum):
    """The result of a claim."""

    CLAIMED = "claimed"
    """The key is new, or its lease has expired: the caller may work now."""
    IN_PROGRESS = "in progress"
    """Another handler is working on it."""
    DONE = "done"
    """The work is done."""


class IdempotenceStore(Protocol):
    """Stores keys. Thread-safe; the guarantees hold across processes that share the store."""

    @property
    def is_blocking(self) -> bool:
        """Whether calls block on a disk or a peer, and so must not run on the event loop."""
        ...

    def claim(self, key: str, owner: str, lease_seconds: float) -> Claim:
        """Claim `key` for `owner` if it is free, or if its lease has expired. Atomic."""
        ...

    def finish(self, key: str) -> None:
        """Mark the work of `key` as done, whatever its owner."""
        ...

    def release(self, key: str, owner: str) -> None:
        """Release `key`, if `owner` still has it."""
        ...


class TransactionalStore(Protocol[C_co]):
    """Stores the key in the same transaction as the handler's own work."""

    def run_once(self, key: str, work: Callable[[C_co], R], is_done: Callable[[R], bool]) -> R | None:
        """Call `work` with a connection unless `key` exists; commit both, or neither if it is not done."""
        ...


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
    """Decorates a sync or async handler of one message."""

    @overload
    def __call__(
        self, handler: Callable[Concatenate[M, P], Coroutine[Any, Any, R]], /
    ) -> Callable[Concatenate[M, P], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[M, P], R], /
    ) -> Callable[Concatenate[M, P], R | None]: ...


class TransactionDecorator(Protocol[C_co]):
    """Decorates a sync handler of one message and a connection."""

    def __call__(self, handler: Callable[[M, C_co], R], /) -> Callable[[M], R | None]:
        """The handler for a consumer."""
        ...


@overload
def idempotent(
    *,
    store: TransactionalStore[C_co],
    key: Callable[[Any], str] = ...,
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
    store: IdempotenceStore | TransactionalStore[Any] | None = None,
    key: Callable[[Any], str] = business_key,
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
    count as consumed.

    `key` returns the business key of a message: by default its keys. `scope` distinguishes handlers that
    share a store, and should be the consumer group; by default it is the handler's name, so that renaming the
    function forgets what was done. The topic is part of the stored key as well. A process that dies in a
    handler holds the key for `lease_seconds`, which must be longer than any handler takes.
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
    if lease_seconds <= 0:
        raise ValueError(f"lease_seconds is {lease_seconds}; it must be above 0")

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        name_of = functools.partial(_stored_key, scope or _name_of(handler), key)
        if _is_transactional(store):
            return only_one_message(_in_transaction(handler, store, name_of))
        guard = _Guard(cast(IdempotenceStore, store), name_of, lease_seconds)
        is_async = handler_of(handler).is_async
        return only_one_message(guard.around_async(handler) if is_async else guard.around_sync(handler))

    return decorate


def means_done(result: object) -> bool:
    """Whether a handler that returned `result` has consumed the message."""
    return result is None or result is ConsumeResult.SUCCESS


class _Guard:
    """One handler's claims on one store."""

    def __init__(
        self, store: IdempotenceStore, name_of: Callable[[KeyedMessage], str], lease_seconds: float
    ) -> None:
        self._store = store
        self._name_of = name_of
        self._lease_seconds = lease_seconds

    def around_sync(self, handler: Callable[..., R]) -> Callable[..., R | None]:
        @functools.wraps(handler)
        def handle_once(message: Any, *context: Any) -> R | None:
            key, owner = self._name_of(message), uuid.uuid4().hex
            if not _may_work(key, self._store.claim(key, owner, self._lease_seconds)):
                return None
            try:
                result = handler(message, *context)
            except BaseException:
                self._release(key, owner)
                raise
            self._settle(key, owner, result)
            return result

        return handle_once

    def around_async(
        self, handler: Callable[..., Awaitable[R]]
    ) -> Callable[..., Coroutine[Any, Any, R | None]]:
        call = _in_thread if self._store.is_blocking else _at_once

        @functools.wraps(handler)
        async def handle_once(message: Any, *context: Any) -> R | None:
            key, owner = self._name_of(message), uuid.uuid4().hex
            try:
                claim = await call(self._store.claim, key, owner, self._lease_seconds)
                result = await handler(message, *context) if _may_work(key, claim) else None
            except BaseException:
                # Also if the claim itself was cancelled, but succeeded nevertheless.
                await call(self._release, key, owner)
                raise
            if claim is Claim.CLAIMED:
                await call(self._settle, key, owner, result)
            return result

        return handle_once

    def _settle(self, key: str, owner: str, result: object) -> None:
        if means_done(result):
            self._store.finish(key)
        else:
            self._release(key, owner)

    def _release(self, key: str, owner: str) -> None:
        try:
            self._store.release(key, owner)
        except Exception:
            # The handler's exception matters more; this only delays the next delivery.
            _log.exception("%s cannot be released; its lease expires after %s s", key, self._lease_seconds)


def _in_transaction(
    handler: Callable[..., Any],
    store: TransactionalStore[Any],
    name_of: Callable[[KeyedMessage], str],
) -> Callable[[Any], Any]:
    if handler_of(handler).is_async:
        raise TypeError(
            f"{_name_of(handler)} is async, and a database transaction of this store is not; "
            "make it a sync function, or use another store"
        )

    def handle_once(message: Any) -> Any:
        return store.run_once(name_of(message), lambda connection: handler(message, connection), means_done)

    # Not `wraps`: the consumer's handler takes only the message.
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(handler, name) and name != "__annotations__":
            setattr(handle_once, name, getattr(handler, name))
    return handle_once


def _may_work(key: str, claim: Claim) -> bool:
    if claim is Claim.IN_PROGRESS:
        raise MessageInProgressError(key)
    if claim is Claim.DONE:
        _log.debug("%s is already done; skipped", key)
    return claim is Claim.CLAIMED


def _stored_key(scope: str, key: Callable[[Any], str], message: KeyedMessage | list[Any]) -> str:
    if isinstance(message, list):
        raise TypeError("an idempotent handler takes one message; consume with batch_size 1")
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


def _is_transactional(
    store: IdempotenceStore | TransactionalStore[Any],
) -> TypeGuard[TransactionalStore[Any]]:
    return hasattr(store, "run_once")


async def _at_once(function: Callable[..., R], *args: object) -> R:
    return function(*args)


async def _in_thread(function: Callable[..., R], *args: object) -> R:
    """Call in a thread. A cancellation takes effect when the call has returned."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
