"""Tail: the last messages of a topic, and new ones.

Read by pulls of the tools' group, which every broker has: nothing is registered, and no offset of a group is
changed. First the stored messages, in the order of storing over all queues; then each queue by held pulls.
The route is refreshed every few seconds, so that new queues and brokers are read as well.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from kourou.admin.messages.message_reading import (
    QueuePlace,
    QueueSpan,
    pull_once,
    queue_span,
    read_span,
    readable_queues,
)
from kourou.admin.session import Admin
from kourou.admin.topics import read_permission_command
from kourou.clock import wall_ms
from kourou.errors import CallTimeoutError, ConfigError, KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from kourou.protocol.tags import SUB_ALL
from kourou.wording import counted

LOOK_BACK: Final = 10_000
"""Maximum number of messages of a queue to search for the last ones that match a filter."""
_HOLD_MS: Final = 15_000
_ROUTE_INTERVAL_S: Final = 5.0
_PAUSE_S: Final = 1.0
# After a pull that found nothing and was not held: without a pause the next one would follow at once.
_NOT_HELD_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Last:
    """Start so many messages before the end; 0: at the end."""

    count: int


@dataclass(frozen=True, slots=True)
class Since:
    """Start with messages stored at or after a time; 0: with the first message."""

    timestamp_ms: int


@dataclass(slots=True)
class _Reading:
    """One queue, and the current offset in it."""

    place: QueuePlace
    since_ms: int
    """Messages stored earlier are skipped."""
    next_offset: int | None = None
    """None until the broker has reported it."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Tail:
    """Reads one topic and calls `emit` with each message, until it returns false.

    `expression` selects tags at the broker, `keeps` filters here. `on_trouble` gets a line about a broker
    that cannot be read, once per outage; the others are still read. `on_note` gets hints.
    """

    def __init__(
        self,
        admin: Admin,
        topic: str,
        begin: Last | Since,
        emit: Callable[[MessageExt], bool],
        *,
        on_trouble: Callable[[str], None],
        on_note: Callable[[str], None],
        expression: str = SUB_ALL,
        keeps: Callable[[MessageExt], bool] | None = None,
        route_interval_s: float = _ROUTE_INTERVAL_S,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._begin = begin
        self._emit = emit
        self._on_trouble = on_trouble
        self._on_note = on_note
        self._expression = expression
        self._keeps = keeps or (lambda _: True)
        self._is_filtered = keeps is not None or expression != SUB_ALL
        self._route_interval_s = route_interval_s
        self._readings: dict[MessageQueue, _Reading] = {}
        self._silent: set[str] = set()
        self._since_ms = 0  # for queues that appear later

    async def run(self, *, follows: bool) -> None:
        """Read stored messages, then with `follows` new ones, until `emit` returns false.

        ResponseError TOPIC_NOT_EXIST if there is no such topic, ConfigError if it may not be read.
        """
        begin_ms = self._begin.timestamp_ms if isinstance(self._begin, Since) else 0
        self._since_ms = begin_ms if isinstance(self._begin, Since) else wall_ms()
        for place in await readable_queues(self._admin, self._topic):
            self._readings[place.queue] = _Reading(place, begin_ms)
        if not self._readings:
            raise ConfigError(
                f"topic {self._topic} may not be read; allow it: "
                f"{await read_permission_command(self._admin, self._topic)}"
            )
        spans = await asyncio.gather(*map(self._stored_span, self._readings.values()))
        stored = self._stored_messages([span for span in spans if span is not None])
        async with aclosing(stored):
            async for message in stored:
                if not self._emit(message):
                    return
        if follows:
            await self._follow()

    # -- stored messages -------------------------------------------------------------------------

    async def _stored_span(self, reading: _Reading) -> QueueSpan | None:
        """The current range of a queue, from its start offset; None if its broker does not respond."""
        try:
            span = await queue_span(self._admin, reading.place, begin_ms=reading.since_ms or None)
        except (RemotingError, ResponseError) as error:
            self._report(reading.place, error)
            return None
        reading.next_offset = span.end_offset
        return span

    async def _stored_messages(self, spans: list[QueueSpan]) -> AsyncGenerator[MessageExt, None]:
        """The messages of all spans in the order of storing."""
        if isinstance(self._begin, Last):
            for message in await self._last_messages(spans, self._begin.count):
                yield message
            return
        queues = [self._messages_of(span) for span in spans]
        try:
            firsts = await asyncio.gather(*(anext(queue, None) for queue in queues))
            heads = [
                (_store_order(first), index, first) for index, first in enumerate(firsts) if first is not None
            ]
            heapq.heapify(heads)
            while heads:
                _, index, message = heads[0]
                yield message
                following = await anext(queues[index], None)
                if following is None:
                    heapq.heappop(heads)
                else:
                    heapq.heapreplace(heads, (_store_order(following), index, following))
        finally:
            for queue in queues:
                await queue.aclose()

    async def _messages_of(self, span: QueueSpan) -> AsyncGenerator[MessageExt, None]:
        """The matching messages of a span. Ends where its broker fails; `_follow` continues there."""
        reading = self._readings[span.place.queue]
        next_offset = span.begin_offset
        try:
            async for pulled in read_span(self._admin, span, expression=self._expression):
                for message in pulled.messages:
                    if self._is_wanted(message, reading):
                        yield message
                next_offset = pulled.next_offset
        except (RemotingError, ResponseError) as error:
            if isinstance(self._begin, Since):
                reading.next_offset = next_offset
            self._report(span.place, error)

    def _is_wanted(self, message: MessageExt, reading: _Reading) -> bool:
        # Brokers of RocketMQ 4 may start one message before the requested time.
        return message.store_timestamp >= reading.since_ms and self._keeps(message)

    async def _last_messages(self, spans: list[QueueSpan], count: int) -> list[MessageExt]:
        if not count:
            return []
        found = await asyncio.gather(*(self._last_of(span, count) for span in spans))
        last = sorted((message for queue in found for message in queue), key=_store_order)[-count:]
        if len(last) < count and any(_size(span) > self._look_back(count) for span in spans):
            matches = counted(len(last), "message matches", "messages match")
            self._on_note(f"of the last {LOOK_BACK:,} of each queue {matches}; --from searches more")
        return last

    async def _last_of(self, span: QueueSpan, count: int) -> list[MessageExt]:
        """The last messages of one queue. With a filter, growing parts are read from its end."""
        found: list[MessageExt] = []
        begin, step = span.end_offset, count
        lowest = max(span.begin_offset, span.end_offset - self._look_back(count))
        while len(found) < count and begin > lowest:
            end, begin = begin, max(lowest, begin - step)
            part = QueueSpan(span.place, begin, end)
            found[:0] = [message async for message in self._messages_of(part)]
            step *= 2
        return found[-count:]

    def _look_back(self, count: int) -> int:
        """How many messages of a queue to search for that many matches."""
        return max(count, LOOK_BACK) if self._is_filtered else count

    # -- new messages ----------------------------------------------------------------------------

    async def _follow(self) -> None:
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for reading in self._readings.values():
            self._start(reading)
        route = asyncio.create_task(self._follow_route(), name=f"tail-{self._topic}-route")
        route.add_done_callback(self._on_end)
        try:
            await self._ended
        finally:
            tasks = [reading.task for reading in self._readings.values() if reading.task is not None]
            for task in (route, *tasks):
                task.cancel()
            await asyncio.gather(route, *tasks, return_exceptions=True)

    def _start(self, reading: _Reading) -> None:
        queue = reading.place.queue
        name = f"tail-{queue.topic}-{queue.broker_name}-{queue.queue_id}"
        reading.task = asyncio.create_task(self._read_on(reading), name=name)
        reading.task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """A task ends only when `emit` returns false, or with an error such as a closed output."""
        if task.cancelled() or self._ended.done():
            return
        if (error := task.exception()) is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _read_on(self, reading: _Reading) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            asked = clock()
            try:
                if reading.next_offset is None:
                    span = await queue_span(self._admin, reading.place, begin_ms=reading.since_ms or None)
                    reading.next_offset = span.begin_offset
                pulled = await pull_once(
                    self._admin,
                    reading.place,
                    reading.next_offset,
                    expression=self._expression,
                    suspend_ms=_HOLD_MS,
                )
            except (RemotingError, ResponseError) as error:
                self._report(reading.place, error)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._silent.discard(reading.place.queue.broker_name)
            for message in pulled.messages:
                if self._is_wanted(message, reading) and not self._emit(message):
                    return
            if pulled.next_offset == reading.next_offset and clock() - asked < _NOT_HELD_S:
                await asyncio.sleep(_PAUSE_S)
            reading.next_offset = pulled.next_offset

    async def _follow_route(self) -> None:
        """Start reading new and returned queues, and stop reading those that are gone."""
        while True:
            await asyncio.sleep(self._route_interval_s)
            try:
                places = {place.queue: place for place in await readable_queues(self._admin, self._topic)}
            except KourouError:
                continue  # No name server, or all brokers are down for now: current reads continue.
            for queue, place in places.items():
                reading = self._readings.setdefault(queue, _Reading(place, self._since_ms))
                reading.place = place
                if reading.task is None:
                    self._start(reading)
            for queue, reading in self._readings.items():
                if queue not in places and reading.task is not None:
                    reading.task.cancel()
                    await asyncio.gather(reading.task, return_exceptions=True)
                    reading.task = None

    def _report(self, place: QueuePlace, error: KourouError) -> None:
        broker = place.queue.broker_name
        if broker not in self._silent:
            self._silent.add(broker)
            self._on_trouble(f"{broker}: {_described(error, place.address)}")


def _described(error: KourouError, address: str) -> str:
    """An error with the address of its server, once."""
    if isinstance(error, CallTimeoutError):
        return f"no answer from {address} within {error.timeout_ms} ms"
    text = str(error)
    return text if address in text else f"{text} (from {address})"


def _size(span: QueueSpan) -> int:
    return span.end_offset - span.begin_offset


def _store_order(message: MessageExt) -> tuple[int, str, int]:
    return message.store_timestamp, message.broker_name, message.phy_offset
