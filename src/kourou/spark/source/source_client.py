"""SourceClient: the source's requests to name servers and brokers; one for all tasks of a process.

Not here: what to read (planning.py, stream_driver.py), what happens to the bytes (reading.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.pulls import PullResult
from kourou.client.pull.queue_reader import QueueChunk, QueueReader
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.client.sync.sync_client import SyncClient
from kourou.errors import KourouError, NoRouteError, ResponseError
from kourou.protocol.bodies import ConsumerData, MessageQueue, TopicList, decode_body
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.names import TOOLS_CONSUMER_GROUP, reply_topic
from kourou.protocol.record_spans import RecordSpans
from kourou.spark.source.options import Connection, SourceOptions
from kourou.spark.source.planning import QueueRange

_log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 1.0
SAMPLE_ROWS: Final = 32

Answers = dict[MessageQueue, int | KourouError]
"""The answers of brokers per queue, or errors."""


@dataclass(slots=True)
class ReadState:
    """The progress of reading a range: everything before `position` was read, except for `gaps`, offsets that
    are gone according to the brokers."""

    position: int
    gaps: list[tuple[int, int]] = field(default_factory=list)


class _UnboundConsumer(AsyncPullConsumer):
    """A pull consumer that does not register its subscriptions: every pull carries them, and tasks of one
    group read different topics, which brokers would treat as a misconfiguration."""

    def consumer_data(self) -> Iterable[ConsumerData]:
        return [msgspec.structs.replace(each, subscription_data_set=[]) for each in super().consumer_data()]


class SourceClient(PullConsumer):
    """A pull consumer with requests for many queues at once."""

    def __init__(self, connection: Connection) -> None:
        # Not PullConsumer's: it would create a consumer of another class.
        SyncClient.__init__(
            self,
            _UnboundConsumer(connection.group or TOOLS_CONSUMER_GROUP, **connection.client_options()),
        )
        self.slave_ends: set[MessageQueue] = set()
        """The queues whose end was returned by a slave, which may not have everything yet."""

    # -- topics and queues -----------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        """Every topic that the name server knows, in the client's namespace if it has one; except for those
        that stand for a cluster or a broker, which have no messages, and for reply topics."""
        client = self._client
        names = self._topic_list(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        known = self._topic_list(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        known -= names | set(map(reply_topic, names))
        shown = {name: client.shown(MessageQueue(name, "", 0)).topic for name in known}
        return [topic for name, topic in shown.items() if client.wire_topic(topic) == name]

    def _topic_list(self, code: RequestCode) -> set[str]:
        answer = self._call(lambda: self._client.instance.api.call_namesrv(code))
        return set(decode_body(answer.body, TopicList).topic_list)

    def routes(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        """The current queues of each topic according to the name server; unknown topics are left out."""
        client = self._client

        async def ask(topic: str) -> list[MessageQueue] | None:
            route = await client.instance.routes.refresh(client.wire_topic(topic))
            return None if route is None else [client.shown(queue) for queue in route.subscribe_queues]

        async def ask_all() -> dict[str, list[MessageQueue]]:
            wanted = list(topics)
            found = await asyncio.gather(*map(ask, wanted))
            return {topic: queues for topic, queues in zip(wanted, found, strict=True) if queues is not None}

        return self._call(ask_all)

    # -- offsets ---------------------------------------------------------------------------------

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Answers:
        """The first offset still stored in each queue."""
        return self._query_all(queues, self._client.min_offset)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Answers:
        """The offset of the next message of each queue."""
        return self._query_all(queues, self._queue_end)

    async def _queue_end(self, queue: MessageQueue) -> int:
        end = await self._client.queue_end(queue)
        if end.broker_id == MASTER_ID:
            self.slave_ends.discard(queue)
        else:
            self.slave_ends.add(queue)
        return end.queue_offset

    def offsets_at(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> Answers:
        """The offset of the first message stored at this time or later, for each queue."""

        async def ask(queue: MessageQueue) -> int:
            low, high = await self._client.min_offset(queue), await self._client.max_offset(queue)
            guess = await self._client.search_offset(queue, timestamp_ms)
            return await first_stored_at(partial(self._stored_at, queue), timestamp_ms, low, high, guess)

        return self._query_all(queues, ask)

    async def _stored_at(self, queue: MessageQueue, queue_offset: int) -> int | None:
        result = await self._client.pull(queue, queue_offset=queue_offset, max_messages=1)
        return int(RecordSpans.of(result.body).store_timestamps[0]) if result.body else None

    def samples(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, PullResult]:
        """A few messages of each queue from its offset on; queues that do not answer are left out."""
        client = self._client

        async def ask(queue: MessageQueue) -> PullResult:
            return await client.pull(queue, queue_offset=offsets[queue], max_messages=SAMPLE_ROWS)

        found = self._query_all(offsets, ask)
        return {queue: result for queue, result in found.items() if isinstance(result, PullResult)}

    def publish(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Commit the group's progress to the brokers; returns the committed offsets."""

        async def tell(queue: MessageQueue) -> int:
            await self._client.commit(queue, offsets[queue])
            return offsets[queue]

        answers = self._query_all(offsets, tell)
        for queue, answer in answers.items():
            if isinstance(answer, KourouError):
                _log.warning("group %s: could not publish the progress of %s: %s", self.group, queue, answer)
        return {queue: answer for queue, answer in answers.items() if isinstance(answer, int)}

    def _query_all(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Coroutine[Any, Any, Any]]
    ) -> dict[MessageQueue, Any]:
        wanted = list(queues)

        async def query_one(queue: MessageQueue) -> Any:
            try:
                return await ask(queue)
            except KourouError as error:
                return error

        async def query_each() -> list[Any]:
            return await asyncio.gather(*map(query_one, wanted))

        return dict(zip(wanted, self._call(query_each), strict=True)) if wanted else {}

    # -- records ---------------------------------------------------------------------------------

    def chunks(self, piece: QueueRange, options: SourceOptions, state: ReadState) -> Iterator[QueueChunk]:
        """The records of a range in order; `state` has the progress.

        Waits up to `fetchRetries` seconds for a broker that does not answer or is not registered.
        """
        failures = 0
        while state.position < piece.end:
            reader = self._reader(piece, options, state.position)
            told = 0
            try:
                for chunk in self._read(reader):
                    failures = 0
                    told += chunk.skipped
                    _add_gap(state, chunk.begin_offset, chunk.skipped)
                    state.position = chunk.next_offset
                    yield chunk
                return
            except KourouError as error:
                failures += 1
                if failures > options.fetch_retries or not _is_transient(error):
                    raise
                _log.warning("%s at offset %d, retrying: %s", piece.queue, state.position, error)
            finally:
                state.position = max(state.position, reader.position or 0)
                _add_gap(state, state.position, reader.skipped - told)
            time.sleep(RETRY_PAUSE_S)

    def _reader(self, piece: QueueRange, options: SourceOptions, begin_offset: int) -> QueueReader:
        return QueueReader(
            piece.queue,
            begin_offset=begin_offset,
            end_offset=piece.end,
            expression=options.expression,
            expression_type=options.expression_type,
            max_bytes=options.fetch_bytes,
            in_flight=options.fetches_in_flight,
            retry_times=0,
            consumer=self._client,
        )


async def first_stored_at(
    stored_at: Callable[[int], Awaitable[int | None]], timestamp_ms: int, low: int, high: int, guess: int
) -> int:
    """The first offset from `low` on that was stored at this time or later; `high` if there is none.

    The search begins at the broker's `guess`: among several messages of one millisecond Apache's 4.9 returns
    any, and for a time without a message, the one before or after.
    """

    async def is_late(offset: int) -> bool:
        stored_ms = await stored_at(offset)
        return stored_ms is None or stored_ms >= timestamp_ms

    at, step = min(max(low, guess), high), 1
    while low < high:
        # Away from the guess in growing steps; by bisection once the result is bracketed.
        at = min(max(low, at), high - 1)
        if await is_late(at):
            high, following = at, at - step
        else:
            low, following = at + 1, at + step
        step *= 2
        at = following if low <= following < high else (low + high) // 2
    return low


def _add_gap(state: ReadState, end: int, length: int) -> None:
    if length > 0:
        state.gaps.append((end - length, end))


def _is_transient(error: KourouError) -> bool:
    if isinstance(error, ResponseError):
        return error.code in _TRANSIENT_CODES
    # A restarting broker is unknown for a moment.
    return error.retriable or isinstance(error, NoRouteError)


_TRANSIENT_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
    }
)
"""Response codes of transient failures."""

_clients: dict[tuple[int, Connection], SourceClient] = {}
_lock = threading.Lock()


def shared_client(connection: Connection) -> SourceClient:
    """This process's client for these servers, started."""
    # Per process: a forked worker needs its own.
    key = os.getpid(), connection
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = SourceClient(connection)
            client.start()
            _clients[key] = client
        return client


def close_shared_clients() -> None:
    """Stop all clients of this process; the next call of `shared_client` creates a new one."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        clients = [_clients.pop(key) for key in mine]
    for client in clients:
        client.stop()
