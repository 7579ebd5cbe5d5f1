"""The check of a transaction producer: asks the application what became of a transaction.

A plain function is called in a thread of the producer's own, an async one on its loop. What it raises
is logged, and means that nobody knows yet: the broker asks again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from kourou.client.push.handler_threads import HandlerThreads
from kourou.client.transactions.transaction_state import TransactionState
from kourou.protocol.message import Message, MessageExt

_log = logging.getLogger(__name__)

TransactionCheck: TypeAlias = Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]
"""Looks up what became of the transaction that a message belongs to: in the application's own database."""

LocalTransaction: TypeAlias = Callable[[Message], TransactionState | Awaitable[TransactionState]]
"""Does what the message tells of, and says what came of it."""


async def call_user(
    function: Callable[[Any], TransactionState | Awaitable[TransactionState]],
    argument: Message | MessageExt,
    threads: HandlerThreads,
) -> TransactionState:
    """Call a function of the application's, wherever it belongs; TypeError if it returns something else."""
    if _is_async(function):
        returned = function(argument)
    else:
        returned = await threads.run(function, argument)
    state = await returned if inspect.isawaitable(returned) else returned
    if not isinstance(state, TransactionState):
        raise wrong_state(function, state)
    return state


def wrong_state(function: Callable[..., Any], returned: object) -> TypeError:
    """What to say of a function of the application's that returned something else than a state."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return TypeError(f"{name} returned {returned!r}; it has to return a TransactionState")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (an object with an async __call__)
    )


class TransactionListener:
    """Calls the application's check, for at most `concurrency` messages at once."""

    def __init__(self, check: TransactionCheck, threads: HandlerThreads, concurrency: int) -> None:
        self._check = check
        self._threads = threads
        self._turns = asyncio.Semaphore(concurrency)

    async def check(self, message: MessageExt) -> TransactionState:
        """What became of the transaction; UNKNOWN where the check fails."""
        async with self._turns:
            try:
                return await call_user(self._check, message, self._threads)
            except Exception:
                _log.exception("the check of transaction message %s failed", message.msg_id)
                return TransactionState.UNKNOWN
