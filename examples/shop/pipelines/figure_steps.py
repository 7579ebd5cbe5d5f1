"""The Python step of figures.yaml."""

from __future__ import annotations

from pyspark.sql import DataFrame


def once(events: DataFrame) -> DataFrame:
    """The first of each event, however often it was sent; the watermark limits how long ids are kept."""
    return events.dropDuplicatesWithinWatermark(["event_id"])
