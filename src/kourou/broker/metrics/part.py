"""MetricsPart: what is measured for metrics while a broker runs. A broker without metrics has no such part,
and nothing is measured."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kourou.broker.part import BrokerPart
from kourou.config.metrics_settings import OTLP_GRPC, OTLP_HTTP
from kourou.metrics.families import Histogram
from kourou.protocol.record_fields import record_store_timestamp
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.metrics.broker_metrics import BrokerMetrics
    from kourou.broker.metrics.push import MetricsPush
    from kourou.store.log.put_status import PutStatus
    from kourou.store.read.get_message_result import GetMessageResult
    from kourou.transport.request_latency import RequestLatency

_DELIVERY_BOUNDS_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
    *(7200.0, 86400.0),
)


class DeliveryLatency(Histogram):
    """How old messages are when consumers get them."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(_DELIVERY_BOUNDS_S)
        self._now_ms = now_ms

    def delivered(self, result: GetMessageResult) -> None:
        """Messages were delivered; the first is the oldest."""
        age_ms = self._now_ms() - record_store_timestamp(result.buffers[0])
        self.delivered_at_age(age_ms, result.message_count)

    def delivered_at_age(self, age_ms: int, messages: int) -> None:
        """The same for messages of which the first had been stored so long before."""
        self.add(max(0, age_ms) / 1000, messages)


class FastSends:
    """Reports the sends of the fast path."""

    def __init__(self, requests: RequestLatency, now_ms: Callable[[], int]) -> None:
        self._requests = requests
        self._now_ms = now_ms

    def stored(self, messages: int, status: PutStatus, cycle_ms: int) -> None:
        """The messages of a run, which began at `cycle_ms`, are answered."""
        self._requests.sends(messages, status.response_code, max(0, self._now_ms() - cycle_ms))


class MetricsPart(BrokerPart):
    """Runs from start to stop."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._metrics = metrics
        self._push: MetricsPush | None = None
        self._pushing: asyncio.Task[None] | None = None

    async def start(self, tasks: TaskOwner) -> None:
        config = self._metrics.config
        if config.current.metrics_exporter_type in (OTLP_GRPC, OTLP_HTTP):
            from kourou.broker.metrics.push import MetricsPush

            self._push = MetricsPush(self._metrics, config)
            self._pushing = tasks.start(self._push.run(), "push-metrics")
        self._metrics.loop_lag.start()

    async def stop(self, timeout_ms: int) -> None:
        self._metrics.loop_lag.stop()
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.wait((self._pushing,))
        if self._push is not None:
            await asyncio.to_thread(self._push.close)
