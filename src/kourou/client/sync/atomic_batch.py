"""AtomicBatch: the sync façade over AsyncAtomicBatch."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kourou.client.producer.atomic_batch import AsyncAtomicBatch
from kourou.client.producer.queue_choice import QueueSelector
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message


class AtomicBatch:
    """Messages of one atomic publish; made by `Producer.atomic`."""

    def __init__(self, call: Callable[[Callable[[], Any]], Any], batch: AsyncAtomicBatch) -> None:
        self._call = call
        self._batch = batch

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
    ) -> str:
        """Add a message; returns its id. It becomes visible with all others, when the block is left.

        Without `queue`, `selector` and `sharding_key`, messages of a topic share a queue until about a
        megabyte is gathered. Messages for one queue are stored in the order of these calls.
        """
        msg_id: str = self._call(
            lambda: self._batch.send(
                message, queue=queue, selector=selector, arg=arg, sharding_key=sharding_key
            )
        )
        return msg_id

    def __enter__(self) -> Self:
        self._call(self._batch.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(lambda: self._batch.__aexit__(kind, error, traceback))
