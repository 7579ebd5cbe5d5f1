"""Which queue an ordinary send goes to: queues in turn, past brokers that failed or were slow.

LatencyFaults remembers for how long each broker is better avoided, by the table of Apache's 5.x
client; QueuePicker takes the queues in turn and, if given one, asks it. Both belong to one producer
and its loop. Not here: choice by the sender (queue_selectors.py), how often a send is tried.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.protocol.bodies.message_queue import MessageQueue

# A send that took so long (or longer) makes its broker avoided for as long as stands below it.
_LATENCY_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
_AVOIDED_MS: Final = (0, 0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
# What a send that failed counts as: how long it took says nothing then.
_ISOLATION_LATENCY_MS: Final = 10_000


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_at: float
    is_reachable: bool


class LatencyFaults:
    """What is known of each broker's last sends. `now` counts seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._faults: dict[str, _Fault] = {}

    def update(self, broker_name: str, latency_ms: float, *, isolate: bool, reachable: bool = True) -> None:
        """Note how a send to `broker_name` went: `isolate` if it failed.

        A time to avoid it is only ever extended. A broker that is not `reachable` stays so until
        somebody says otherwise here.
        """
        avoided_ms = avoided_for_ms(_ISOLATION_LATENCY_MS if isolate else latency_ms)
        fault = self._faults.get(broker_name)
        if fault is None:
            # Known brokers that answer fast are the rule: they cost one entry and no clock.
            fault = self._faults[broker_name] = _Fault(latency_ms, 0.0, reachable)
        fault.latency_ms = latency_ms
        fault.is_reachable = reachable
        if avoided_ms:
            fault.available_at = max(fault.available_at, self._now() + avoided_ms / 1000)

    def is_available(self, broker_name: str) -> bool:
        """Whether the time to avoid it, if there was one, is over."""
        fault = self._faults.get(broker_name)
        return fault is None or not fault.available_at or self._now() >= fault.available_at

    def is_reachable(self, broker_name: str) -> bool:
        """Whether a connection to it was possible when it was last tried."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def unreachable_brokers(self) -> list[str]:
        """Those to probe: nothing is sent to them until they are said to be reachable."""
        return [name for name, fault in self._faults.items() if not fault.is_reachable]

    def forget(self, broker_name: str) -> None:
        """The broker is gone from all routes."""
        self._faults.pop(broker_name, None)


def avoided_for_ms(latency_ms: float) -> int:
    """For how long a broker is avoided after a send of that latency.

    >>> [avoided_for_ms(latency_ms) for latency_ms in (5, 549, 550, 1_800, 10_000, 60_000)]
    [0, 0, 2000, 5000, 10000, 30000]
    """
    return _AVOIDED_MS[bisect_right(_LATENCY_MS, latency_ms)]


class QueuePicker:
    """Takes a topic's queues in turn, each topic for itself, from a random start.

    Without `faults` only a retry is special: it goes to another broker than the last attempt, if there
    is one. With them, brokers that are to be avoided come last.
    """

    def __init__(self, faults: LatencyFaults | None = None) -> None:
        self._faults = faults
        # One counter for all topics would, with two topics sent to by turns, reach every second queue only.
        self._counters: dict[str, int] = {}

    def pick(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """The queue for the next attempt; `last_broker` is where the attempt before it went, if any."""
        if self._faults is None:
            found = self._next_where(queues, last_broker, _any) if last_broker else None
            return found or self._next(queues)
        for is_fit in (self._faults.is_available, self._faults.is_reachable):
            if found := self._next_where(queues, last_broker, is_fit):
                return found
        return self._next(queues)

    def _next(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        topic = queues[0].topic
        counter = self._counters.get(topic)
        if counter is None:
            counter = random.randrange(1 << 30)
        self._counters[topic] = counter + 1
        return queues[counter % len(queues)]

    def _next_where(
        self, queues: Sequence[MessageQueue], last_broker: str | None, is_fit: Callable[[str], bool]
    ) -> MessageQueue | None:
        for _ in queues:
            queue = self._next(queues)
            if queue.broker_name != last_broker and is_fit(queue.broker_name):
                return queue
        return None


def _any(broker_name: str) -> bool:
    return True
