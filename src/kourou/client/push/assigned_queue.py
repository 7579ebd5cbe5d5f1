"""AssignedQueue: a queue that is ours: what is in hand of it, and where to go on pulling.

How far the group is follows from the messages in hand: the first of them, or the next one to pull. It
is worked out when somebody asks, not for each message.
Not here: who pulls (pull_service.py), who consumes (concurrent_service.py, orderly_service.py).
"""

from __future__ import annotations

import asyncio

from kourou.client.core.subscription import Subscription
from kourou.client.push.flow_control import FlowLimits
from kourou.client.push.process_queue import ProcessQueue
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.message import MessageExt


class AssignedQueue(ProcessQueue):
    """One queue, from the rebalance that gave it to us to the one that takes it away."""

    def __init__(self, queue: MessageQueue, subscription: Subscription, limits: FlowLimits) -> None:
        super().__init__()
        self.queue = queue
        self.subscription = subscription
        self.next_offset = 0
        """Where to pull next."""
        self.pulled_offset: int | None = None
        """The same, as a broker said it; None before it did."""
        self.pull_from = MASTER_ID
        self.is_scheduled = False
        """Of an orderly consumer: it waits for a worker, or one works on it."""
        self.idle = asyncio.Event()
        """Of an orderly consumer: no handler is at work."""
        self.idle.set()
        self._limits = limits
        self._dropped_ms = 0
        self._room: asyncio.Future[None] | None = None

    # -- messages --------------------------------------------------------------------------------

    def pulled_messages(self, messages: list[MessageExt], next_offset: int) -> list[MessageExt]:
        """Take in what a pull brought; those that were not here already."""
        added = self.add(messages) if messages else messages
        self.next_offset = self.pulled_offset = next_offset
        return added

    def ack(self, message: MessageExt) -> bool:
        """A message is done with; False when it was before."""
        # `remove` for one message, without what only its answer needs.
        if self._cached.pop(message.queue_offset, None) is None:
            return False
        self.size_bytes -= message.store_size
        if self._room is not None and self.flow_problem() is None:
            self._wake()
        return True

    def commit_taken(self) -> None:
        """What an orderly handler took is done with."""
        self.commit()
        if self._room is not None and self.flow_problem() is None:
            self._wake()

    @property
    def consumed_offset(self) -> int | None:
        """How far the group is: everything below is done. None when nothing is known yet."""
        first = next(iter(self._taken), None)
        return next(iter(self._cached), self.pulled_offset) if first is None else first

    # -- flow control ----------------------------------------------------------------------------

    def flow_problem(self) -> str | None:
        """Why no more should be pulled now; None when it may."""
        return self._limits.problem(self.count, self.size_bytes, self.span)

    async def wait_room(self) -> None:
        """Wait until more may be pulled, or the queue is dropped."""
        while not self.is_dropped and self.flow_problem() is not None:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def drop(self) -> None:
        """It is not ours any more: nothing of it is consumed from now on."""
        self.is_dropped = True
        self._dropped_ms = self._now_ms()
        self._wake()

    @property
    def leaving_ms(self) -> int:
        """How long ago it was dropped."""
        return self._now_ms() - self._dropped_ms
