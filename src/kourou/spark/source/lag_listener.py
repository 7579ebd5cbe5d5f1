"""LagListener: logs the lag of the streams of a session, after each batch.

    spark.streams.addListener(LagListener())

The source puts the numbers into the query's progress (stream_driver.py): Spark (4.3) offers Python sources
neither metrics nor a description there, so topics and lag are part of `latestOffset`.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The lag of one source: unread messages, the age of the oldest one, and their approximate size. `topics`
    are those that it reads."""

    messages: int
    seconds: float
    size_bytes: int = 0
    topics: tuple[str, ...] = ()


def stream_lag(source_progress: Any) -> StreamLag | None:
    """The lag in one of `progress.sources`; None for sources of other kinds."""
    text = (
        source_progress.latestOffset
        if not isinstance(source_progress, dict)
        else source_progress["latestOffset"]
    )
    try:
        content = json.loads(text) if isinstance(text, str) else text
        lag = content["lag"]
        topics = tuple(sorted(content.get("offsets", ())))
        return StreamLag(int(lag["messages"]), float(lag["seconds"]), int(lag.get("bytes", 0)), topics)
    except (TypeError, ValueError, KeyError):
        return None


class LagListener(StreamingQueryListener):
    """Logs the lag, at WARNING when it is more than `warn_seconds`, else at INFO."""

    def __init__(self, *, warn_seconds: float = 60.0) -> None:
        self._warn_seconds = warn_seconds

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log the lag of each rocketmq source."""
        progress = event.progress
        for source in progress.sources:
            lag = stream_lag(source)
            if lag is not None:
                level = logging.WARNING if lag.seconds > self._warn_seconds else logging.INFO
                name = progress.name or progress.id
                _log.log(
                    level,
                    "query %s, topics %s: %d messages, %d bytes, %.1f s behind",
                    name,
                    ", ".join(lag.topics),
                    lag.messages,
                    lag.size_bytes,
                    lag.seconds,
                )

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...
