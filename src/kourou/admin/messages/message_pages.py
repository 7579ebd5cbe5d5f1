"""Pages of a topic's messages: those of all its queues in the order of storing, newest or oldest first.

    page = await read_page(admin, PageRequest("orders", limit=50))
    more = await read_page(admin, request, page.next)

A page continues where the one before ended: `PagePosition` has the offset of every queue, and where the queue
ended when the first page was read. So pages neither overlap nor miss a message while others are sent. Work is
bounded by messages, bytes and time; a page that reached a bound has fewer messages and says so. A broker that
fails is a problem of the page, not an error: its queues stay where they are and are tried again by the next.

An SQL92 condition is evaluated by the brokers; where one refuses that, here. Bodies are looked at here.
Not here: the form in which pages and positions travel (console/api).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from kourou.admin.messages.message_reading import Pulled, QueuePlace, pull_once, subscription_of
from kourou.admin.session import Admin, replica_address
from kourou.admin.topics import QueueStatus, topic_status
from kourou.client.pull.pulls import PullStatus
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.filter import FilterProgram
from kourou.protocol.message import MessageExt
from kourou.protocol.tags import SUB_ALL

_MOST_BYTES: Final = 32 * 1024 * 1024
_DEADLINE_S: Final = 8.0
_MOST_OFFSETS: Final = 200_000
_CONCURRENT: Final = 16
# Messages of a queue at once. The first pull shows how large they are.
_FEWEST: Final = 4
_MOST: Final = 32
_LARGE_BYTES: Final = 64 * 1024
# Without matches, parts read backwards grow up to this many offsets.
_MOST_STEP: Final = 8_192
_SQL_REFUSED: Final = (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Which messages of a topic are returned; all by default."""

    tags: str = SUB_ALL
    """`TagA || TagB`."""
    condition: FilterProgram | None = None
    """An SQL92 condition on properties."""
    keeps: Callable[[MessageExt], bool] | None = None
    """Called in another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What to read."""

    topic: str
    begin_ms: int | None = None
    """Stored at or after this time."""
    end_ms: int | None = None
    """Stored before this time; without it, what is stored when the first page is read."""
    is_newest_first: bool = True
    broker: str | None = None
    """Only queues of this broker."""
    queue_id: int | None = None
    """Only queues with this id."""
    offset: int | None = None
    """Begin at this offset of each queue, and go on in the order of the page."""
    limit: int = 50
    """Messages of a page."""
    filter: MessageFilter = field(default_factory=MessageFilter)
    most_offsets: int = _MOST_OFFSETS
    """How many offsets a page may read, matching or not."""
    deadline_s: float = _DEADLINE_S


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets of a queue that are not read yet; `end_offset` is exclusive."""

    begin_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """How many offsets are left."""
        return max(0, self.end_offset - self.begin_offset)


PagePosition = dict[MessageQueue, QueueRange]
"""What is left of each queue; a queue whose broker has not answered yet is missing."""


@dataclass(frozen=True, slots=True)
class QueueReading:
    """What a page has read of one queue."""

    broker_name: str
    queue_id: int
    from_offset: int
    to_offset: int
    """Exclusive."""
    left: int
    """Offsets that are not read yet."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MessagePage(Generic[T]):
    """Some messages, and an account of what was read for them."""

    messages: list[T]
    queues: list[QueueReading]
    """Without queues that were finished before, or have nothing in the range."""
    next: PagePosition | None
    """Where the next page begins; None if everything was read."""
    problems: list[str]
    """What is missing in this page, and why."""
    stopped_by: str
    """The bound that ended the page before it was full: `messages`, `bytes` or `seconds`; empty if none."""
    scanned: int
    """Offsets between the position before and `next`."""
    filtered_here: list[str]
    """Brokers that do not evaluate SQL92: their messages were transferred and the condition was evaluated
    here."""

    @property
    def is_complete(self) -> bool:
        """Whether the page has all messages of its range."""
        return not self.problems and not self.stopped_by


async def read_page(
    admin: Admin,
    request: PageRequest,
    summarize: Callable[[MessageExt], T],
    position: PagePosition | None = None,
) -> MessagePage[T]:
    """The first page, or that at a position. `summarize` is called in another thread and makes what the page
    has of each message, so that bodies need not be kept. ResponseError TOPIC_NOT_EXIST if there is no such
    topic, ConfigError for an invalid tag expression."""
    tags = subscription_of(request.topic, request.filter.tags).tags_set
    reader = _PageReader(admin, request, summarize, frozenset(tags))
    await reader.open(position or {})
    return await reader.read()


@dataclass(frozen=True, slots=True)
class _Found(Generic[T]):
    """A message of a queue."""

    order: tuple[int, str, int, int]
    """By time of storing, then any order that is always the same."""
    queue_offset: int
    item: T


@dataclass(slots=True)
class _Queue(Generic[T]):
    """One queue of a page that is being read."""

    place: QueuePlace
    begin: int
    end: int
    found: deque[_Found[T]] = field(default_factory=deque)
    step: int = 0
    mean_bytes: int = _LARGE_BYTES
    """Of the messages of the last pull."""
    first: QueueRange = QueueRange(0, 0)
    problem: str = ""

    @property
    def is_hungry(self) -> bool:
        """Whether more must be read to know its next message."""
        return not self.found and not self.problem and self.begin < self.end


class _PageReader(Generic[T]):
    """Reads one page."""

    def __init__(
        self,
        admin: Admin,
        request: PageRequest,
        summarize: Callable[[MessageExt], T],
        tags: frozenset[str],
    ) -> None:
        self._admin = admin
        self._request = request
        self._summarize = summarize
        self._tags = tags
        self._queues: list[_Queue[T]] = []
        self._has_unknown = False  # a queue whose offsets could not be determined
        self._problems: dict[str, None] = {}
        self._unfiltered: set[str] = set()
        self._scanned = 0
        self._bytes = 0
        self._ends_at = time.monotonic() + request.deadline_s
        self._room = asyncio.Semaphore(_CONCURRENT)

    # -- which queues ----------------------------------------------------------------------------

    async def open(self, position: PagePosition) -> None:
        """Find the queues, and what is to be read of each."""
        request = self._request
        route = await self._admin.route(request.topic)
        addresses = {broker.broker_name: replica_address(broker) for broker in route.broker_datas}
        for queue, rest in position.items():
            place = QueuePlace(queue, addresses.get(queue.broker_name) or "")
            one: _Queue[T] = _Queue(place, rest.begin_offset, rest.end_offset)
            if not place.address and rest.size:
                one.problem = f"broker {queue.broker_name}: it is not registered at present"
                self._problems[one.problem] = None
            self._queues.append(one)
        if set(addresses) - {queue.broker_name for queue in position}:
            await self._add_new(addresses, position)
        self._queues.sort(key=lambda one: one.place.queue)
        for one in self._queues:
            one.first = QueueRange(one.begin, one.end)

    async def _add_new(self, addresses: dict[str, str | None], known: Iterable[MessageQueue]) -> None:
        status = await topic_status(self._admin, self._request.topic)
        names = {address: name for name, address in addresses.items()}
        for silent in status.silent:
            self._has_unknown = True
            self._problems[f"broker {names.get(silent.address, '?')}: {silent.problem}"] = None
        wanted = [
            queue
            for queue in status.queues
            if self._request.broker in (None, queue.broker_name)
            and self._request.queue_id in (None, queue.queue_id)
            and MessageQueue(status.topic, queue.broker_name, queue.queue_id) not in known
        ]
        opened = await asyncio.gather(
            *(self._opened(queue, addresses.get(queue.broker_name) or "") for queue in wanted)
        )
        self._queues += [one for one in opened if one is not None]

    async def _opened(self, status: QueueStatus, address: str) -> _Queue[T] | None:
        """A queue with the offsets of the requested times; None if it cannot be read now."""
        request = self._request
        place = QueuePlace(MessageQueue(request.topic, status.broker_name, status.queue_id), address)
        begin, end = status.min_offset, status.max_offset
        if request.offset is not None:
            begin, end = self._from_offset(status, request.offset)
        last_ms = status.last_update_timestamp
        if begin >= end or (request.begin_ms is not None and last_ms and last_ms < request.begin_ms):
            return _Queue(place, end, end)
        try:
            async with self._room:
                if request.begin_ms is not None:
                    found = await self._admin.api.search_offset(address, place.queue, request.begin_ms)
                    begin = max(begin, min(found, end))
                if request.end_ms is not None and not (last_ms and last_ms < request.end_ms):
                    found = await self._admin.api.search_offset(address, place.queue, request.end_ms)
                    # RocketMQ 4 returns the last message before a time after all messages.
                    end = min(end, found + 1)
        except (RemotingError, ResponseError) as error:
            self._report(place, error)
            self._has_unknown = True
            return None
        return _Queue(place, min(begin, end), end)

    def _from_offset(self, status: QueueStatus, offset: int) -> tuple[int, int]:
        begin, end = status.min_offset, status.max_offset
        where = f"queue {status.queue_id} of {status.broker_name}"
        if offset < begin:
            self._problems[f"{where}: offset {offset} is deleted, the queue begins at {begin}"] = None
        elif offset >= end:
            self._problems[f"{where}: offset {offset} does not exist yet, the queue ends at {end}"] = None
        if self._request.is_newest_first:
            return begin, min(end, offset + 1)
        return max(begin, offset), end

    # -- reading ---------------------------------------------------------------------------------

    async def read(self) -> MessagePage[T]:
        """Merge the queues until the page is full."""
        messages: list[T] = []
        stopped_by = ""
        while len(messages) < self._request.limit:
            hungry = [one for one in self._queues if one.is_hungry]
            if hungry:
                if stopped_by := self._reached_bound():
                    break
                await asyncio.gather(*(self._fill(one, len(hungry)) for one in hungry))
                continue
            ready = [one for one in self._queues if one.found]
            if not ready:
                break
            choose = max if self._request.is_newest_first else min
            messages.append(choose(ready, key=lambda one: one.found[0].order).found.popleft().item)
        return self._page(messages, stopped_by)

    def _reached_bound(self) -> str:
        if not self._scanned:
            return ""  # every page makes progress
        if self._scanned >= self._request.most_offsets:
            return "messages"
        if self._bytes >= _MOST_BYTES:
            return "bytes"
        return "seconds" if time.monotonic() >= self._ends_at else ""

    async def _fill(self, one: _Queue[T], hungry: int) -> None:
        count = max(_FEWEST, min(_MOST, 2 * self._request.limit // hungry))
        if one.mean_bytes >= _LARGE_BYTES:
            count = _FEWEST
        try:
            async with self._room:
                if self._request.is_newest_first:
                    await self._fill_backwards(one, count)
                else:
                    await self._fill_forwards(one, count)
        except (RemotingError, ResponseError) as error:
            one.problem = self._report(one.place, error)

    async def _fill_forwards(self, one: _Queue[T], count: int) -> None:
        found, one.begin = await self._pulled(one, one.begin, one.end, count)
        one.found.extend(found)

    async def _fill_backwards(self, one: _Queue[T], count: int) -> None:
        """Read the last part of the queue from its beginning on, as brokers read forwards only."""
        step = max(one.step, count)
        begin = next_offset = max(one.begin, one.end - step)
        found: list[_Found[T]] = []
        while next_offset < one.end:
            pulled, next_offset = await self._pulled(one, next_offset, one.end, count)
            found += pulled
        one.found.extend(reversed(found))
        one.step = 0 if len(found) * 8 > step else min(_MOST_STEP, 2 * step)
        one.end = begin

    async def _pulled(self, one: _Queue[T], begin: int, end: int, count: int) -> tuple[list[_Found[T]], int]:
        """Matching messages from an offset on, and the next offset; `end` if nothing is there."""
        pulled = await self._pull(one.place, begin, count)
        next_offset = pulled.next_offset
        if pulled.status is PullStatus.OFFSET_ILLEGAL and begin < next_offset:
            last = min(next_offset, end) - 1
            where = f"queue {one.place.queue.queue_id} of {one.place.queue.broker_name}"
            self._problems[f"{where}: offsets {begin} to {last} are deleted"] = None
        elif pulled.is_end or next_offset <= begin:
            next_offset = end
        next_offset = min(next_offset, end)
        self._scanned += next_offset - begin
        size_bytes = sum(message.store_size for message in pulled.messages)
        self._bytes += size_bytes
        one.mean_bytes = size_bytes // max(1, len(pulled.messages))
        within = [message for message in pulled.messages if begin <= message.queue_offset < end]
        return await asyncio.to_thread(self._found, within) if within else [], next_offset

    async def _pull(self, place: QueuePlace, offset: int, count: int) -> Pulled:
        wanted = self._request.filter
        broker_name = place.queue.broker_name
        if wanted.condition is not None and broker_name not in self._unfiltered:
            try:
                return await pull_once(
                    self._admin,
                    place,
                    offset,
                    count=count,
                    expression=wanted.condition.text,
                    expression_type="SQL92",
                )
            except ResponseError as error:
                if error.code not in _SQL_REFUSED:
                    raise
                self._unfiltered.add(broker_name)
        return await pull_once(self._admin, place, offset, count=count, expression=wanted.tags)

    def _found(self, messages: list[MessageExt]) -> list[_Found[T]]:
        return [
            _Found(_order(message), message.queue_offset, self._summarize(message))
            for message in messages
            if self._is_wanted(message)
        ]

    def _is_wanted(self, message: MessageExt) -> bool:
        request, wanted = self._request, self._request.filter
        # Searches by time are exact to one message only on some brokers.
        if request.begin_ms is not None and message.store_timestamp < request.begin_ms:
            return False
        if request.end_ms is not None and message.store_timestamp >= request.end_ms:
            return False
        if wanted.condition is not None:
            if not wanted.condition.matches(message.properties.get):
                return False
            if self._tags and message.tags not in self._tags:
                return False
        return wanted.keeps is None or wanted.keeps(message)

    def _report(self, place: QueuePlace, error: KourouError) -> str:
        problem = f"broker {place.queue.broker_name}: {error}"
        self._problems[problem] = None
        return problem

    # -- the result ------------------------------------------------------------------------------

    def _page(self, messages: list[T], stopped_by: str) -> MessagePage[T]:
        rests = {one.place.queue: self._rest(one) for one in self._queues}
        is_finished = not any(rest.size for rest in rests.values()) and not self._has_unknown
        return MessagePage(
            messages,
            [self._reading(one, rests[one.place.queue]) for one in self._queues if one.first.size],
            None if is_finished else rests,
            list(self._problems),
            stopped_by,
            sum(one.first.size - rests[one.place.queue].size for one in self._queues),
            sorted(self._unfiltered),
        )

    def _rest(self, one: _Queue[T]) -> QueueRange:
        """What is left of a queue, with what was read for this page and does not fit into it."""
        if not one.found:
            return QueueRange(one.begin, one.end)
        if self._request.is_newest_first:
            return QueueRange(one.begin, one.found[0].queue_offset + 1)
        return QueueRange(one.found[0].queue_offset, one.end)

    def _reading(self, one: _Queue[T], rest: QueueRange) -> QueueReading:
        queue = one.place.queue
        if self._request.is_newest_first:
            begin, end = rest.end_offset, one.first.end_offset
        else:
            begin, end = one.first.begin_offset, rest.begin_offset
        return QueueReading(queue.broker_name, queue.queue_id, begin, end, rest.size, one.problem)


def _order(message: MessageExt) -> tuple[int, str, int, int]:
    return message.store_timestamp, message.broker_name, message.queue_id, message.queue_offset
