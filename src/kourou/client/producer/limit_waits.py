"""LimitWaits: sends that a limit at a broker rejects: of the account, or of a topic with an overflow policy.

The broker says when the next send may succeed. Until then all sends to that broker name wait together, in
order, each within its own timeout; if the limit is a topic's, those to that topic. Then one is tried, and
each success releases two more, so that the rate grows as fast as the broker accepts it. A further refusal
begins a new pause. Not here: what a refusal says (protocol/over_limit.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from kourou.client.producer.ordered_wait import OrderedWait
from kourou.client.producer.pending_send import PendingSend
from kourou.client.producer.send_result import SendResult
from kourou.errors import LimitError, TopicLimitError
from kourou.protocol.bodies.message_queue import MessageQueue

# A send that was released may end slowly, or at another broker: meanwhile others are tried.
_LOOK_S = 0.1
_AFTER_SUCCESS = 2


WaitKey: TypeAlias = tuple[str, str | None]
"""A broker name, and the topic whose limit it is; None: the account's."""


class LimitWait(OrderedWait):
    """The sends that one limit concerns. None is sent before `until`, of the loop's clock."""

    def __init__(self, key: WaitKey) -> None:
        super().__init__(key[0])
        self.key = key

    until = 0.0
    timer: asyncio.TimerHandle | None = None


class LimitWaits:
    """The waits of one producer. `start` begins an attempt."""

    def __init__(self, start: Callable[[PendingSend], None]) -> None:
        self._start = start
        self._loop = asyncio.get_running_loop()
        self.waits: dict[WaitKey, LimitWait] = {}

    def wait(self, send: PendingSend, queue: MessageQueue, error: LimitError) -> None:
        """Let a send that was refused wait as long as the answer says, and repeat it in the same queue."""
        key = queue.broker_name, error.topic if isinstance(error, TopicLimitError) else None
        wait = self.waits.get(key)
        if wait is None:
            wait = self.waits[key] = LimitWait(key)
        send.repeats_in = queue
        wait.problem = str(error)
        wait.until = max(wait.until, self._loop.time() + (error.wait_ms or 0) / 1000)
        self._enter(wait, send)
        self._arm(wait, wait.until)

    def holds(self, send: PendingSend, queue: MessageQueue) -> bool:
        """Whether a new send has to wait behind others; then it does."""
        wait = self.waits.get((queue.broker_name, None)) or self.waits.get((queue.broker_name, queue.topic))
        if wait is None or send in wait.orders:
            return False
        self._enter(wait, send)
        if wait.timer is None:
            self._arm(wait, self._loop.time() + _LOOK_S)
        return True

    def _enter(self, wait: LimitWait, send: PendingSend) -> None:
        wait.enter(send, partial(self._ended, wait, send))

    def _arm(self, wait: LimitWait, at: float) -> None:
        if wait.timer is not None:
            wait.timer.cancel()
        wait.timer = self._loop.call_at(at, self._look, wait)

    def _look(self, wait: LimitWait) -> None:
        wait.timer = None
        self._release(wait, 1)
        if wait.waiting and wait.timer is None:
            self._arm(wait, self._loop.time() + _LOOK_S)

    def _ended(self, wait: LimitWait, send: PendingSend, future: asyncio.Future[SendResult]) -> None:
        wait.orders.pop(send, None)
        if self._loop.time() >= wait.until:
            is_stored = not future.cancelled() and future.exception() is None
            self._release(wait, _AFTER_SUCCESS if is_stored else 1)
        if not wait.waiting and self._loop.time() >= wait.until:
            self._remove(wait)

    def _release(self, wait: LimitWait, count: int) -> None:
        for send in wait.leave(count):
            self._start(send)

    def _remove(self, wait: LimitWait) -> None:
        if self.waits.get(wait.key) is wait:
            del self.waits[wait.key]
        if wait.timer is not None:
            wait.timer.cancel()
            wait.timer = None
