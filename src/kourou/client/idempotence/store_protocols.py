"""What @idempotent expects of messages and stores: KeyedMessage, IdempotenceStore, TransactionalStore."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from kourou.client.idempotence.inbox import Position
from kourou.client.push.consume_result import ConsumeResult

R = TypeVar("R")
C_co = TypeVar("C_co", covariant=True)


class KeyedMessage(Protocol):
    """The attributes of a message that are used: Message and MessageExt have them."""

    topic: str

    @property
    def keys(self) -> tuple[str, ...]: ...

    def get_property(self, name: str) -> str | None: ...


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
    """Stores the keys in the same transaction as the handler's own work."""

    def run_batch(
        self,
        keys: Sequence[str],
        work: Callable[[C_co, list[int]], R],
        is_done: Callable[[R], bool],
        position: Position | None = None,
    ) -> R | None:
        """Call `work` with a connection and the indexes of the `keys` that are new, unless there are none;
        commit its statements, the keys and the position together, or nothing if it is not done."""
        ...


class AsyncTransactionalStore(Protocol[C_co]):
    """The same for async handlers."""

    async def run_batch(
        self,
        keys: Sequence[str],
        work: Callable[[C_co, list[int]], Awaitable[R]],
        is_done: Callable[[R], bool],
        position: Position | None = None,
    ) -> R | None:
        """As in a TransactionalStore."""
        ...


def means_done(result: object) -> bool:
    """Whether a handler that returned `result` has consumed the message."""
    return result is None or result is ConsumeResult.SUCCESS
