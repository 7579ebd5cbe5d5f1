"""Claims: handlers around an IdempotenceStore, which is not part of the handler's own transaction.

A key is claimed before the handler, and finished or released after it. Of a batch the handler gets the
messages that are new. If one of them is being handled elsewhere, the whole batch is delivered again later.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from kourou.client.idempotence.store_protocols import Claim, IdempotenceStore, KeyedMessage, means_done
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult, done_count
from kourou.errors import MessageInProgressError

_log = logging.getLogger(__name__)

R = TypeVar("R")


class ClaimedHandler:
    """One handler's claims on one store."""

    def __init__(
        self, store: IdempotenceStore, name_of: Callable[[KeyedMessage], str], lease_seconds: float
    ) -> None:
        self._store = store
        self._name_of = name_of
        self._lease_seconds = lease_seconds

    def around_sync(self, handler: Callable[..., R]) -> Callable[..., R | None]:
        """The handler for a consumer."""

        @functools.wraps(handler)
        def handle_once(message: Any, *context: Any) -> R | None:
            delivery = self._delivery(message, context)
            if not self._claim(delivery):
                return None
            try:
                result = handler(delivery.argument, *context)
            except BaseException:
                self._settle(delivery, ConsumeResult.LATER)
                raise
            self._settle(delivery, result)
            return result

        return handle_once

    def around_async(
        self, handler: Callable[..., Awaitable[R]]
    ) -> Callable[..., Coroutine[Any, Any, R | None]]:
        """The same for an async handler; a store that blocks is called in threads."""
        call = _in_thread if self._store.is_blocking else _at_once

        @functools.wraps(handler)
        async def handle_once(message: Any, *context: Any) -> R | None:
            delivery = self._delivery(message, context)
            try:
                is_new = await call(self._claim, delivery)
                result = await handler(delivery.argument, *context) if is_new else None
            except BaseException:
                # Also if the claim itself was cancelled, but succeeded nevertheless.
                await call(self._settle, delivery, ConsumeResult.LATER)
                raise
            if is_new:
                await call(self._settle, delivery, result)
            return result

        return handle_once

    def _delivery(self, message: Any, context: tuple[Any, ...]) -> _Delivery:
        keys = [self._name_of(each) for each in message] if isinstance(message, list) else None
        given = context[0] if context and isinstance(context[0], ConsumeContext) else None
        return _Delivery(message, [self._name_of(message)] if keys is None else keys, given)

    def _claim(self, delivery: _Delivery) -> bool:
        """Claim the keys; whether one of them is new."""
        claimed: set[str] = set()
        try:
            for index, key in enumerate(delivery.keys):
                if key in claimed:
                    continue  # twice in one batch
                claim = self._store.claim(key, delivery.owner, self._lease_seconds)
                if claim is Claim.IN_PROGRESS:
                    raise MessageInProgressError(key)
                if claim is Claim.CLAIMED:
                    claimed.add(key)
                    delivery.fresh.append(index)
                else:
                    _log.debug("%s is already done; skipped", key)
        except BaseException:
            self._settle(delivery, ConsumeResult.LATER)
            delivery.fresh.clear()
            raise
        return bool(delivery.fresh)

    def _settle(self, delivery: _Delivery, result: object) -> None:
        """Finish the keys of messages that are consumed, release the others."""
        done = delivery.done(result)
        for index in delivery.fresh:
            if index in done:
                self._store.finish(delivery.keys[index])
            else:
                self._release(delivery.keys[index], delivery.owner)

    def _release(self, key: str, owner: str) -> None:
        try:
            self._store.release(key, owner)
        except Exception:
            # The handler's exception matters more; this only delays the next delivery.
            _log.exception("%s cannot be released; its lease expires after %s s", key, self._lease_seconds)


class _Delivery:
    """One call of a handler: the message, or list of messages, and which of them are new."""

    def __init__(self, message: Any, keys: Sequence[str], context: ConsumeContext | None) -> None:
        self._message = message
        self.keys = keys
        self._context = context
        self.owner = uuid.uuid4().hex
        self.fresh: list[int] = []

    @property
    def argument(self) -> Any:
        """What the handler gets."""
        if not isinstance(self._message, list):
            return self._message
        return [self._message[index] for index in self.fresh]

    def done(self, result: object) -> list[int]:
        """The indexes of the new messages that are consumed. `ack_index` counts those that the handler got;
        afterwards it counts all, as the consumer does."""
        context = self._context
        if context is None or context.ack_index is None:
            return self.fresh if means_done(result) else []
        done = self.fresh[: done_count(ConsumeResult.LATER, context, len(self.fresh))]
        left = [index for index in self.fresh if index not in done]
        context.ack_index = left[0] - 1 if left else len(self.keys) - 1
        return done


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
