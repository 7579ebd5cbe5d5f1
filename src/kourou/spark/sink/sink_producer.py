"""SinkProducer: a producer that also sends and stages encoded batch bodies; one per worker process.

Spark reuses its Python workers, and so the producer is kept, with its connections and routes. Its
loop is the one that the plain clients of a process share, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from kourou.client.core.unique_id import shared_unique_ids
from kourou.client.producer.atomic_publish import AtomicHandle
from kourou.client.producer.atomic_sessions import AtomicSessions
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_request import SendRequest
from kourou.client.producer.send_result import SendResult
from kourou.client.sync.blocking_portal import BlockingPortal, enter_portal, leave_portal
from kourou.errors import ConnectError, KourouError, NoRouteError
from kourou.protocol.atomic import Outcome, StagedGroup
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.features import Feature
from kourou.protocol.headers.atomic import (
    AtomicOutcomeResponseHeader,
    GetSinkRequestHeader,
    GetSinkResponseHeader,
    QueryAtomicRequestHeader,
)
from kourou.protocol.message import Message
from kourou.protocol.properties import MessageConst, encode_properties, properties_to_bytes
from kourou.spark.sink.sink_options import SinkOptions
from kourou.wording import nearest

_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
# A worker serves few sinks; beyond this number, producers are recreated.
_MAX_PRODUCERS: Final = 8
_PUBLISH_WAIT_S: Final = 2.0
_PUBLISH_PAUSE_S: Final = 0.001
_LONGEST_PUBLISH_PAUSE_S: Final = 0.02


class SinkProducer(AsyncProducer):
    """An AsyncProducer with the options of the sink."""

    @classmethod
    def of(cls, options: SinkOptions) -> SinkProducer:
        """A producer with these options; to be called on its loop."""
        return cls(
            options.producer_group,
            namesrv=options.namesrv,
            credentials=options.credentials,
            namespace=options.namespace,
            tls=options.tls,
            send_timeout_ms=options.send_timeout_ms,
            max_message_bytes=options.max_message_bytes,
        )

    @property
    def batch_properties(self) -> str:
        """Properties of every message of a batch."""
        name = self._namespace.name
        return encode_properties({MessageConst.PROPERTY_INSTANCE_ID: name}) if name else ""

    async def check_topic(self, topic: str, *, may_create: bool) -> None:
        """NoRouteError when nothing can be sent to the topic; also when a broker would create it, unless
        `may_create`, as the name may be misspelled."""
        route = await self._instance.routes.get(self._namespace.wrap(topic), to_publish=True)
        if route.is_provisional and not may_create:
            near = nearest(topic, map(self._namespace.unwrap, await self._instance.api.topic_names()))
            hint = f" (did you mean {near}?)" if near else ""
            raise NoRouteError(
                topic,
                f"the name server does not know it{hint}; create it with `kourou topic create`, or set the "
                "option createTopic=true if a broker may create it",
            )

    async def send_entries(
        self, topic: str, body: bytes | memoryview, count: int, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send a batch body of `count` messages, to `queue` or to the next one. Errors as for `send`. A view
        must not change until then."""
        sends = self._running()
        message = Message(topic, b"-")  # a placeholder for those in the body
        choose = None if queue is None else self._choice(message, queue)
        timeout_ms, deadline = self._deadline(None)
        request = SendRequest(
            _SEND_BATCH,
            self._namespace.wrap(topic),
            body,
            self.batch_properties,
            shared_unique_ids().next_id(),
            0,
            0,
            int(time.time() * 1000),
            batch=True,
        )
        return await self._send(sends, request, (message,) * count, choose, timeout_ms, deadline)

    # -- atomic publishes ------------------------------------------------------------------------

    async def brokers_without_atomic(self, topics: Sequence[str]) -> list[str]:
        """The brokers of these topics that do not support atomic publishes; of all, without topics.
        RemotingError if one does not respond."""
        routes = self._instance.routes
        await routes.add_all_brokers()
        names = set(routes.brokers)
        if topics:
            found = [await routes.get(self._namespace.wrap(topic), to_publish=True) for topic in topics]
            names = {queue.broker_name for route in found for queue in route.publish_queues}
        return [name for name in sorted(names) if not await self._supports_atomic(name)]

    async def _supports_atomic(self, broker_name: str) -> bool:
        return Feature.ATOMIC_PUBLISH in await self._instance.features.of(self._master(broker_name))

    def _master(self, broker_name: str) -> str:
        address = self._instance.routes.master(broker_name)
        if address is None:
            raise ConnectError(f"broker {broker_name!r}", "the name server knows no master of that name")
        return address

    async def begin_sink_batch(
        self, sink_id: str, timeout_ms: int
    ) -> tuple[str, AtomicHandle, GetSinkResponseHeader]:
        """Begin an atomic publish of a sink: the name of the sink at brokers, the publish, and the last batch
        that the sink has committed. Publishes of the sink that began before cannot be committed any more, so
        that this batch stays the last one."""
        sink_name = f"spark-sink-{sink_id}"
        if self._namespace.name:
            sink_name = f"{self._namespace.name}.{sink_name}"
        sessions = AtomicSessions(self._instance, self._wire_group, self._options, sink_name)
        handle = (await sessions.begin(timeout_ms)).handle
        header = GetSinkRequestHeader(kourou_sink_id=sink_name)
        address = self._master(handle.coordinator)
        answer = await self._instance.api.call(address, RequestCode.GET_KOUROU_SINK, header)
        return sink_name, handle, answer.header(GetSinkResponseHeader)

    async def wait_published(self, handle: AtomicHandle, broker_names: Iterable[str]) -> None:
        """Wait until brokers have published their parts of a committed publish; not for those that are
        away."""
        deadline, pause_s = self._now() + _PUBLISH_WAIT_S, _PUBLISH_PAUSE_S
        for broker_name in broker_names:
            header = QueryAtomicRequestHeader(
                kourou_atomic_id=handle.atomic_id, kourou_broker_name=broker_name
            )
            while self._now() < deadline:
                try:
                    address = self._master(handle.coordinator)
                    answer = await self._instance.api.call(address, RequestCode.QUERY_KOUROU_ATOMIC, header)
                except KourouError:
                    return
                if answer.header(AtomicOutcomeResponseHeader).kourou_outcome != Outcome.COMMITTED:
                    break
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PUBLISH_PAUSE_S)

    def staged_entries(self, topic: str, queue_id: int, body: memoryview) -> StagedGroup:
        """A batch body for one queue, as it is staged."""
        # Encoded as bytes, whatever it is.
        entries: bytes = body  # type: ignore[assignment]
        return StagedGroup(self._namespace.wrap(topic), queue_id, 0, int(time.time() * 1000), entries)

    async def staged_message(self, message: Message, queue_id: int) -> StagedGroup:
        """A message for one queue, as it is staged; a large one is compressed."""
        request = await self._prepared(message)
        entry = BatchEntry(request.flag, bytes(request.body), properties_to_bytes(request.properties))
        return StagedGroup(
            request.topic,
            queue_id,
            request.sys_flag,
            request.born_timestamp,
            encode_batch_entries([entry]),
        )


class WorkerProducer:
    """A SinkProducer and the way to its loop, for a plain thread."""

    def __init__(self, options: SinkOptions) -> None:
        self.portal: BlockingPortal = enter_portal()
        try:
            self.producer: SinkProducer = self.portal.do(lambda: SinkProducer.of(options))
            self.portal.call(self.producer.start)
        except BaseException:
            leave_portal(self.portal)
            raise

    @property
    def is_usable(self) -> bool:
        """Whether it belongs to this process, and its loop runs."""
        return not self.portal.is_foreign and not self.portal.is_over

    def stop(self) -> None:
        if self.is_usable:
            try:
                self.portal.call(self.producer.stop)
            finally:
                leave_portal(self.portal)


_lock = threading.Lock()
_producers: dict[SinkOptions, WorkerProducer] = {}


def worker_producer(options: SinkOptions) -> WorkerProducer:
    """This process's producer for these options, created and started on first use. Writes of a sink share
    it."""
    options = replace(options, write_id=None)
    with _lock:
        found = _producers.get(options)
        if found is None or not found.is_usable:
            if len(_producers) >= _MAX_PRODUCERS:
                _stop_all()
            found = _producers[options] = WorkerProducer(options)
            # Spark's workers collect garbage after each task: long-lived objects need not be scanned each
            # time.
            gc.freeze()
        return found


def wait_worker_producer(options: SinkOptions) -> WorkerProducer:
    """The same, but waits for an unreachable name server as long as the options allow."""
    pauses_s = options.pauses_s()
    while True:
        try:
            return worker_producer(options)
        except KourouError as error:
            pause_s = next(pauses_s, None)
            if not error.retriable or pause_s is None:
                raise
            time.sleep(pause_s)


def stop_worker_producers() -> None:
    """Stop all producers of this process."""
    with _lock:
        _stop_all()


def _stop_all() -> None:
    while _producers:
        _producers.popitem()[1].stop()
