"""PullRequestHoldService: pulls that found nothing wait here for a message.

A message that arrives wakes the pulls of its queue in the same commit cycle, so that it is in the same
write to the socket as if they had come later. Tags and properties are compared first: a pull that
does not match goes on waiting. Every 5 s all are looked at, so that one that waits for rare messages
moves on; after its own time a pull is answered that there is nothing. How many may wait is bounded,
of one connection too, so that it cannot take everybody's places.
Not here: what a pull is (pull_message_processor.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kourou.broker.pull.filtered_read import PullMatcher
from kourou.broker.pull.pull_targets import PullTarget
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT, UNIT_BYTES
from kourou.transport.connection import Connection
from kourou.transport.request import Request

# Beyond this a pull that finds nothing is answered at once, as if it did not want to wait.
MAX_HELD: Final = 200_000
# The same for one connection: more than a consumer of 2,000 topics with 8 queues each has under way.
MAX_HELD_PER_CONNECTION: Final = 20_000
# A client that asks for more is asked to come again, lest it is long gone.
MAX_HOLD_MS: Final = 10 * 60 * 1000

QueueKey = tuple[str, int]


class Pull:
    """One pull that passed its checks; `matcher` is its filter beside that of the target. While it waits,
    `seen_queue_offset` says which messages it has been compared with."""

    __slots__ = (
        "header",
        "matcher",
        "key",
        "request",
        "seen_queue_offset",
        "target",
        "timer",
    )

    def __init__(
        self,
        request: Request,
        header: PullMessageRequestHeader,
        target: PullTarget,
        matcher: PullMatcher | None = None,
    ) -> None:
        self.request = request
        self.header = header
        self.target = target
        self.matcher = matcher
        self.key: QueueKey = (header.topic, header.queue_id)
        self.seen_queue_offset = header.queue_offset
        self.timer: asyncio.TimerHandle | None = None


class PullRequestHoldService:
    """The waiting pulls of one broker. `resume` runs a pull once more, and for the last time."""

    def __init__(
        self,
        find_queue: Callable[[str, int], ConsumeQueue | None],
        open_pass: Callable[[], None],
        resume: Callable[[Pull], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._find_queue = find_queue
        self._open_pass = open_pass
        self._resume = resume
        self._held: dict[QueueKey, dict[Pull, None]] = {}
        self._held_of: dict[Connection, int] = {}
        # How many wait; looked at after each commit cycle, so an attribute.
        self.held_count = 0

    def __len__(self) -> int:
        return self.held_count

    def hold(self, pull: Pull, timeout_ms: int) -> bool:
        """Let a pull wait; False when too many do, of all or of its connection."""
        connection = pull.request.connection
        held_of = self._held_of.get(connection, 0)
        if self.held_count >= MAX_HELD or held_of >= MAX_HELD_PER_CONNECTION:
            return False
        self._held.setdefault(pull.key, {})[pull] = None
        self._held_of[connection] = held_of + 1
        self.held_count += 1
        pull.timer = self._loop.call_later(min(timeout_ms, MAX_HOLD_MS) / 1000, self._expired, pull)
        return True

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        """These queues have grown; to be called inside a commit cycle."""
        for queue in queues:
            pulls = self._held.get((queue.topic, queue.queue_id))
            if pulls:
                self._wake([pull for pull in pulls if _is_met(pull, queue)])

    def check(self) -> None:
        """Look at all of them: messages that did not match, connections that are gone."""
        if not self.held_count:
            return
        self._open_pass()
        for key, pulls in list(self._held.items()):
            queue = self._find_queue(*key)
            newest = queue.max_queue_offset if queue is not None else 0
            self._wake([p for p in pulls if p.header.queue_offset < newest or p.request.connection.closed])

    def wake_all(self) -> None:
        """Answer everybody: the broker stops, or what may be read has changed."""
        self._open_pass()
        for pulls in list(self._held.values()):
            self._wake(list(pulls))

    def _wake(self, pulls: list[Pull]) -> None:
        for pull in pulls:
            self._take_out(pull)
        for pull in pulls:
            if not pull.request.connection.closed:
                self._resume(pull)

    def _expired(self, pull: Pull) -> None:
        self._open_pass()
        self._wake([pull])

    def _take_out(self, pull: Pull) -> None:
        pulls = self._held[pull.key]
        del pulls[pull]
        if not pulls:
            del self._held[pull.key]
        self.held_count -= 1
        connection = pull.request.connection
        self._held_of[connection] -= 1
        if not self._held_of[connection]:
            del self._held_of[connection]
        if pull.timer is not None:
            pull.timer.cancel()


def _is_met(pull: Pull, queue: ConsumeQueue) -> bool:
    """Whether there is something for this pull among the messages it has not been compared with."""
    newest = queue.max_queue_offset
    if pull.target.codes is None and pull.matcher is None:
        return newest > pull.header.queue_offset
    while pull.seen_queue_offset < newest:
        units = queue.read_units_nowait(pull.seen_queue_offset, newest - pull.seen_queue_offset)
        if not units:  # not in memory, or below what is kept: the pull itself can tell
            return True
        if _has_match(pull, units):
            return True
        pull.seen_queue_offset += len(units) // UNIT_BYTES
    return False


def _has_match(pull: Pull, units: bytes) -> bool:
    matcher = pull.matcher
    if matcher is None:
        codes = pull.target.codes
        return codes is None or any(tags_code in codes for _, _, tags_code in UNIT.iter_unpack(units))
    matcher.rest()
    # What the matcher cannot tell, because there is much of it, the pull itself finds out in steps.
    found = any(matcher(phy_offset, size) is not False for phy_offset, size, _ in UNIT.iter_unpack(units))
    matcher.rest()
    return found
