"""@idempotent: a handler that does its work once for each business event, however often it is delivered.

A message can come twice because its send was repeated after a lost answer (then under two unique ids),
because an acknowledgement was lost, or because a queue moved to another consumer. So messages are told
apart by their business key, and what was done is kept in a store (idempotence_stores.py):

    new ── claim ──► in progress ── finish ──► done      done: the message is passed over
     ▲                   │                               in progress: MessageInProgressError, delivered again
     └──── release ◄─────┘ the handler failed, or its lease ran out because its process died

Between the handler's last effect and `finish` a crash still repeats the message. Where that must not
be, the effect and the key go into one transaction of one database: DbApiStore.
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
# Room for a line of text in any store; longer keys are hashed.
_MAX_KEY_CHARACTERS: Final = 250

P = ParamSpec("P")
R = TypeVar("R")
C_co = TypeVar("C_co", covariant=True)


class KeyedMessage(Protocol):
    """What is needed of a message: both Message and MessageExt have it."""

    topic: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The business keys."""
        ...

    def get_property(self, name: str) -> str | None:
        """One property."""
        ...


M = TypeVar("M", bound=KeyedMessage)


class Claim(enum.Enum):
    """What a store says to a claim."""

    CLAIMED = "claimed"
    """The key is new, or was left behind: whoever asked may work now."""
    IN_PROGRESS = "in progress"
    """Somebody else is at work on it."""
    DONE = "done"
    """The work is done."""


class IdempotenceStore(Protocol):
    """Where keys are kept. Any thread may call; what is said here holds across processes if they share it."""

    @property
    def is_blocking(self) -> bool:
        """Whether calls wait for a disk or a peer, and so must stay off the event loop."""
        ...

    def claim(self, key: str, owner: str, lease_seconds: float) -> Claim:
        """Take `key` for `owner` if it is free, or if the lease of who has it is over. Atomic."""
        ...

    def finish(self, key: str) -> None:
        """The work of `key` is done, whoever has it now."""
        ...

    def release(self, key: str, owner: str) -> None:
        """Give `key` back, if `owner` has it still."""
        ...


class TransactionalStore(Protocol[C_co]):
    """Keeps the key in the same transaction as the handler's own work."""

    def run_once(self, key: str, work: Callable[[C_co], R], is_done: Callable[[R], bool]) -> R | None:
        """Call `work` with a connection unless `key` is there; commit both, or neither if it is not done."""
        ...


def business_key(message: KeyedMessage) -> str:
    """The keys that the message was sent with; NoBusinessKeyError where there are none."""
    if not message.keys:
        raise _no_key(message)
    return KEY_SEPARATOR.join(message.keys)


def unique_id_key(message: KeyedMessage) -> str:
    """The id that the producer's client gave the message.

    A send that is repeated by the application has another one: this tells deliveries apart, not events.
    """
    unique_id = message.get_property(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    if not unique_id:
        raise _no_key(message)
    return unique_id


class HandlerDecorator(Protocol):
    """Decorates a handler of one message, plain or async."""

    @overload
    def __call__(
        self, handler: Callable[Concatenate[M, P], Coroutine[Any, Any, R]], /
    ) -> Callable[Concatenate[M, P], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[M, P], R], /
    ) -> Callable[Concatenate[M, P], R | None]: ...


class TransactionDecorator(Protocol[C_co]):
    """Decorates a plain handler of one message and a connection."""

    def __call__(self, handler: Callable[[M, C_co], R], /) -> Callable[[M], R | None]:
        """The handler that a consumer is given."""
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

    The handler may be `async`; then a store that blocks works in threads. If it raises, or returns
    something else than None or success, the key is given back, so that the next delivery works. Messages
    that are passed over count as consumed.

    `key` says what tells messages apart: by default their keys. `scope` tells handlers that share a
    store apart, and should be the consumer group; by default it is the handler's own name, so that renaming
    the function forgets what was done. The topic is part of the key as well.
    A process that dies at work holds a key for `lease_seconds`: longer than any handler takes.
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
        raise ValueError(f"lease_seconds is {lease_seconds}; a handler needs time to work in")

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        name_of = functools.partial(_stored_key, scope or _name_of(handler), key)
        if _is_transactional(store):
            return only_one_message(_in_transaction(handler, store, name_of))
        guard = _Guard(cast(IdempotenceStore, store), name_of, lease_seconds)
        is_async = handler_of(handler).is_async
        return only_one_message(guard.around_async(handler) if is_async else guard.around_sync(handler))

    return decorate


def means_done(result: object) -> bool:
    """Whether a handler that returned this will not get the message again."""
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
                # Also where the claim itself was cancelled, and went through all the same.
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
            # What the handler raised is the news; this only means that the next delivery waits longer.
            _log.exception("%s: cannot be given back; it is free after %s s", key, self._lease_seconds)


def _in_transaction(
    handler: Callable[..., Any],
    store: TransactionalStore[Any],
    name_of: Callable[[KeyedMessage], str],
) -> Callable[[Any], Any]:
    if handler_of(handler).is_async:
        raise TypeError(
            f"{_name_of(handler)} is async, and a database transaction of this store is not; "
            "make it a plain function, or use another store"
        )

    def handle_once(message: Any) -> Any:
        return store.run_once(name_of(message), lambda connection: handler(message, connection), means_done)

    # Not `wraps`: the consumer's handler takes the message alone.
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(handler, name) and name != "__annotations__":
            setattr(handle_once, name, getattr(handler, name))
    return handle_once


def _may_work(key: str, claim: Claim) -> bool:
    if claim is Claim.IN_PROGRESS:
        raise MessageInProgressError(key)
    if claim is Claim.DONE:
        _log.debug("%s was done before; passed over", key)
    return claim is Claim.CLAIMED


def _stored_key(scope: str, key: Callable[[Any], str], message: KeyedMessage | list[Any]) -> str:
    if isinstance(message, list):
        raise TypeError("an idempotent handler takes one message; consume with batch_size 1")
    text = f"{scope}/{_own_topic(message)}/{key(message)}"
    if len(text) <= _MAX_KEY_CHARACTERS:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _own_topic(message: KeyedMessage) -> str:
    """The topic that the message was sent to: a retry is the same message."""
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
    """Call in a thread. A cancellation takes effect when the thread has ended: it cannot be stopped."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
