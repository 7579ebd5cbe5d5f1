"""ProgressPublisher: publishes the progress of a session's streams to a topic, for the console.

    spark.streams.addListener(ProgressPublisher("127.0.0.1:9876"))

One small message for each batch, at most one a second for each query, and one every ten seconds while it
waits for data (PipelineStatus). Sent one-way: a cluster that is away costs a stream nothing but a warning.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kourou.client.sync.producer import Producer
from kourou.clock import wall_ms
from kourou.errors import KourouError
from kourou.protocol.message import Message
from kourou.protocol.pipeline_status import FAILED, PIPELINES_TOPIC, RUNNING, STOPPED, PipelineStatus
from kourou.spark.source.lag_listener import stream_lag

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_log = logging.getLogger(__name__)

_GROUP: Final = "kourou_pipelines_publisher"
_MIN_INTERVAL_S: Final = 1.0
_IDLE_INTERVAL_S: Final = 10.0
_MAX_ERROR: Final = 2_000


class ProgressPublisher(StreamingQueryListener):
    """Publishes to the cluster of `namesrv`. `application` is shown beside each query. `close` it when the
    session ends."""

    def __init__(
        self, namesrv: str, *, application: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._namesrv = namesrv
        self._application = application
        self._clock = clock
        self._producer: Producer | None = None
        self._is_failing = False
        self._last: dict[str, tuple[float, PipelineStatus]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Publish that it runs."""
        self._publish(self._status(str(event.id), str(event.runId), event.name, RUNNING))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Publish the numbers of a batch: of the first one at once, of one that follows too soon with the
        next event."""
        status = self._of_progress(event.progress)
        published = self._last.get(status.query_id)
        if (
            published is None
            or published[1].batch_id is None
            or self._is_due(status.query_id, _MIN_INTERVAL_S)
        ):
            self._publish(status)
        else:
            self._last[status.query_id] = published[0], status

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Publish now and then that it still runs."""
        query_id = str(event.id)
        if query_id in self._last and self._is_due(query_id, _IDLE_INTERVAL_S):
            last = self._last[query_id][1]
            self._publish(_changed(last, time_ms=wall_ms(), rows=0, rows_per_second=0.0))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Publish how it ended."""
        query_id, error = str(event.id), event.exception or ""
        state = FAILED if error else STOPPED
        _, last = self._last.pop(query_id, (0.0, None))
        last = last or self._status(query_id, str(event.runId), None, state)
        self._publish(_changed(last, time_ms=wall_ms(), state=state, error=error[:_MAX_ERROR]))
        self._last.pop(query_id, None)

    def close(self) -> None:
        """Stop the producer."""
        if self._producer is not None:
            self._producer.stop()
            self._producer = None

    # -- publishing ------------------------------------------------------------------------------

    def _is_due(self, query_id: str, interval_s: float) -> bool:
        at_s, _ = self._last.get(query_id, (-interval_s, None))
        return self._clock() - at_s >= interval_s

    def _publish(self, status: PipelineStatus) -> None:
        self._last[status.query_id] = self._clock(), status
        try:
            if self._producer is None:
                producer = Producer(_GROUP, namesrv=self._namesrv)
                producer.start()
                self._producer = producer
            self._producer.send_oneway(Message(PIPELINES_TOPIC, status.encode(), keys=[status.query_id]))
            self._is_failing = False
        except KourouError as error:
            if not self._is_failing:
                _log.warning("the progress of %s cannot be published: %s", status.name, error)
            self._is_failing = True

    def _status(self, query_id: str, run_id: str, name: str | None, state: str) -> PipelineStatus:
        return PipelineStatus(
            name=name or query_id,
            query_id=query_id,
            run_id=run_id,
            application=self._application,
            host=socket.gethostname(),
            state=state,
            time_ms=wall_ms(),
        )

    def _of_progress(self, progress: StreamingQueryProgress) -> PipelineStatus:
        lags = [lag for lag in map(stream_lag, progress.sources) if lag is not None]
        return _changed(
            self._status(str(progress.id), str(progress.runId), progress.name, RUNNING),
            batch_id=int(progress.batchId),
            rows=int(progress.numInputRows),
            rows_per_second=_finite(progress.processedRowsPerSecond),
            batch_ms=int(progress.durationMs.get("triggerExecution", 0)),
            lag_messages=sum(lag.messages for lag in lags) if lags else None,
            lag_seconds=max(lag.seconds for lag in lags) if lags else None,
            topics=sorted({topic for lag in lags for topic in lag.topics}),
            sink=progress.sink.description,
        )


def _changed(status: PipelineStatus, **fields: Any) -> PipelineStatus:
    return PipelineStatus(**{name: getattr(status, name) for name in status.__struct_fields__} | fields)


def _finite(rate: float | None) -> float | None:
    return None if rate is None or rate != rate or rate == float("inf") else float(rate)
