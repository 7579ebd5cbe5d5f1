"""SinkProducer: a producer that also sends encoded batch bodies; one per worker process.

Spark reuses its Python workers, and so the producer is kept, with its connections and routes. Its
loop is the one that the plain clients of a process share, in a thread of its own.
"""

from __future__ import annotations

import gc
import threading
import time
from typing import Final

from kourou.client.core.unique_id import shared_unique_ids
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_request import SendRequest
from kourou.client.producer.send_result import SendResult
from kourou.client.sync.blocking_portal import BlockingPortal, enter_portal, leave_portal
from kourou.errors import KourouError, NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.message import Message
from kourou.protocol.properties import MessageConst, encode_properties
from kourou.spark.sink.sink_options import SinkOptions
from kourou.wording import nearest

_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
# A worker serves few sinks; beyond this number, producers are recreated.
_MAX_PRODUCERS: Final = 8


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
        name = self._namespace.name
        request = SendRequest(
            _SEND_BATCH,
            self._namespace.wrap(topic),
            body,
            encode_properties({MessageConst.PROPERTY_INSTANCE_ID: name}) if name else "",
            shared_unique_ids().next_id(),
            0,
            0,
            int(time.time() * 1000),
            batch=True,
        )
        return await self._send(sends, request, (message,) * count, choose, timeout_ms, deadline)


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
    """This process's producer for these options, created and started on first use."""
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
