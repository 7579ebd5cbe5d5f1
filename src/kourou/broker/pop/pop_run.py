"""One pop on its way: what calls it, its request, one look at the queues for it, and what that has taken.

Not here: what is done with them (pop_service.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.pop_polling import ANY_QUEUE, HeldPop

if TYPE_CHECKING:
    from kourou.broker.admission import Ruling
    from kourou.broker.groups.message_filter import MessageFilter
    from kourou.broker.pop.pop_answer import PopResult
    from kourou.broker.pop.pop_plan import PlannedQueue
    from kourou.protocol.headers.pop import PopMessageRequestHeader
    from kourou.protocol.pop.offset_infos import OrderCounts
    from kourou.store.read.get_message_result import GetMessageResult


class Caller(Protocol):
    """Where a request comes from, and its answer goes to."""

    @property
    def address(self) -> str:
        """Of the client."""
        ...

    @property
    def owner(self) -> object:
        """Its connection: when that closes, its pops wait no more."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether an answer would reach no one."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether the client does not read its answers now."""
        ...

    def check_again(self, ruling: Ruling) -> None:
        """RequestError if the client may no longer do what it was admitted to under `ruling`."""
        ...

    def run_cold(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do work that waits for the disk when it is its turn, never if the client goes away before. What it
        raises becomes the answer. RequestError: too much waits."""
        ...

    def fail(self, error: Exception) -> None:
        """Respond that the request was rejected, or failed."""
        ...


class PopCaller(Caller, Protocol):
    """Where a pop comes from."""

    def answer(self, result: PopResult) -> None:
        """Respond with this."""
        ...


class Pop:
    """One request, from its arrival to its answer."""

    __slots__ = ("caller", "header", "held", "key", "ruling", "selected")

    def __init__(
        self, header: PopMessageRequestHeader, caller: PopCaller, selected: MessageFilter, ruling: Ruling
    ) -> None:
        self.header = header
        self.caller = caller
        self.selected = selected
        self.ruling = ruling
        self.key = OrderKey(header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))
        self.held: HeldPop | None = None


class PopPart:
    """What one run has taken from one queue."""

    __slots__ = ("counts", "epoch", "is_retry", "is_stored", "key", "result", "start_offset")

    def __init__(self, key: OrderKey, start_offset: int, result: GetMessageResult, is_retry: bool) -> None:
        self.key = key
        self.start_offset = start_offset
        self.result = result
        self.is_retry = is_retry
        self.epoch = 0
        self.is_stored = False
        self.counts: OrderCounts | None = None


class PopRun:
    """One look at the queues, for a pop that has just come or has been woken."""

    __slots__ = (
        "again_ms",
        "count",
        "has_waited",
        "is_last",
        "is_walked",
        "parts",
        "pending",
        "pop_time",
        "problem",
        "rest",
        "revive_queue_id",
        "steps",
    )

    def __init__(
        self, steps: Iterator[PlannedQueue], pop_time: int, revive_queue_id: int, is_last: bool
    ) -> None:
        self.steps = steps
        self.pop_time = pop_time
        self.revive_queue_id = revive_queue_id
        self.is_last = is_last
        """Whether it is answered, whatever there is."""
        self.parts: list[PopPart] = []
        self.count = 0
        self.rest = 0
        self.pending = 0
        self.is_walked = False
        self.has_waited = False
        self.again_ms: int | None = None
        """When there may be something without a message arriving."""
        self.problem: Exception | None = None

    def look_again(self, in_ms: int) -> None:
        self.again_ms = in_ms if self.again_ms is None else min(in_ms, self.again_ms)
