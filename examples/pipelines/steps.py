"""Python steps of the pipelines in this folder: DataFrames in, a DataFrame out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

GAP_MS = 30_000
"""Clicks that are further apart belong to different sessions."""
SESSION = "visitor string, began timestamp, ended timestamp, clicks int, pages array<string>"


def once_by_key(orders: DataFrame) -> DataFrame:
    """The first message of each key; the watermark limits how long keys are kept."""
    return orders.dropDuplicatesWithinWatermark(["key"])


def sessions(clicks: DataFrame) -> DataFrame:
    """A row for each finished session."""
    return (
        clicks.select("visitor", "page", "at")
        .groupBy("visitor")
        .transformWithStateInPandas(
            SessionProcessor(),
            outputStructType=SESSION,
            outputMode="Append",
            timeMode="EventTime",
        )
    )


class SessionProcessor(StatefulProcessor):
    """Keeps the open session of each visitor, and a timer for its end."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once in each task."""
        self._handle = handle
        self._session = handle.getValueState(
            "session", "began_ms bigint, ended_ms bigint, pages array<string>"
        )

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Clicks of one visitor, in any order."""
        clicks = pd.concat(list(rows)).sort_values("at")
        session = self._session.get() if self._session.exists() else None
        for page, at in zip(clicks["page"], clicks["at"], strict=True):
            at_ms = at.value // 1_000_000
            if session is not None and at_ms - session[1] > GAP_MS:
                yield _row(key[0], session)
                session = None
            if session is None:
                session = (at_ms, at_ms, [page])
            else:
                session = (min(session[0], at_ms), max(session[1], at_ms), [*session[2], page])
        self._session.update(session)
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        self._handle.registerTimer(session[1] + GAP_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """The session has timed out."""
        if self._session.exists():
            yield _row(key[0], self._session.get())
            self._session.clear()

    def close(self) -> None:
        """Nothing to release."""


def _row(visitor: str, session: Any) -> pd.DataFrame:
    began_ms, ended_ms, pages = session
    return pd.DataFrame(
        {
            "visitor": [visitor],
            "began": [pd.Timestamp(began_ms, unit="ms")],
            "ended": [pd.Timestamp(ended_ms, unit="ms")],
            "clicks": [len(pages)],
            "pages": [list(pages)],
        }
    )
