"""Archives, and topics as one table of archived and live messages: each message once.

A message is identified by topic, broker, queue and offset. If an archive has all offsets between its first
and its last one, as those of `kourou pipeline archive` do, they are not read from the topic; otherwise a join
removes duplicates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue
from kourou.spark.pipelines.archive.archive_folder import ArchiveFolder, open_archive
from kourou.spark.pipelines.lake.lake import open_backend, read_lake
from kourou.spark.source.offsets import QueueOffsets, nested
from kourou.spark.source.queue_lookup import offsets_or_raise
from kourou.spark.source.source_client import SourceClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE: Final = ("broker", "queue_id", "queue_offset")
_PROPERTIES: Final = "properties"
_PROPERTY_PREFIX: Final = "property_"


class Archives:
    """Reads the archives in these folders."""

    def __init__(self, spark: SparkSession, folders: Sequence[str]) -> None:
        self._spark = spark
        self._folders = folders

    def whole(self, topic: str) -> DataFrame:
        """All columns of a topic's archived messages."""
        frames = [read_lake(self._spark, open_archive(folder).table) for folder in self._folders]
        frames = [frame.where(frame["topic"] == topic) for frame in frames]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionByName(other, allowMissingColumns=True)
        # A message may be in several archives.
        return frame if len(frames) == 1 else frame.dropDuplicates(list(PLACE))

    def rows(self, topic: str, columns: list[str], properties: list[str]) -> DataFrame:
        """Columns of archived messages, and single properties."""
        from pyspark.sql.functions import col, element_at, lit

        frame = self.whole(topic)
        there = set(frame.columns)
        chosen = [col(name) if name in there else lit(None).alias(name) for name in columns]
        for name in properties:
            key = name.removeprefix(_PROPERTY_PREFIX)
            found = element_at(col(_PROPERTIES), lit(key)) if _PROPERTIES in there else lit(None)
            chosen.append(found.cast("string").alias(name))
        return frame.select(*chosen)


def archive_topics(folders: Sequence[str]) -> frozenset[str]:
    """The topics of archives, without Spark. ConfigError if a folder is not an archive."""
    return frozenset(topic for folder in folders for topic in _topics(open_archive(folder)))


def _topics(archive: ArchiveFolder) -> Iterator[str]:
    snapshot = open_backend(archive.table).snapshot()
    for file in snapshot.files if snapshot is not None else ():
        topic = dict(file.partition).get("topic")
        if topic is not None:
            yield topic


def union_rows(
    archives: Archives,
    topic: str,
    columns: list[str],
    properties: list[str],
    client: SourceClient,
    live: Callable[[list[str], Mapping[str, str]], DataFrame],
) -> DataFrame:
    """Both sides of a topic; `live` reads columns of the live side, with options of the source.

    ConfigError if the topic is shorter than its archive."""
    wanted = list(dict.fromkeys([*columns, *PLACE]))
    archived = archives.rows(topic, wanted, properties)
    spans = archived_spans(archived, topic)
    queues = client.routes([topic]).get(topic, [])
    low, high = offsets_or_raise(client.min_offsets(queues)), offsets_or_raise(client.max_offsets(queues))
    names = [*columns, *properties]
    begins = live_begins(spans, low, high)
    if begins is not None:
        rest = live(columns, {"startingOffsets": json.dumps(nested(begins))})
        return archived.select(*names).unionByName(rest.select(*names))
    missing = live(wanted, {}).join(archived.select(*PLACE), on=list(PLACE), how="left_anti")
    return archived.select(*names).unionByName(missing.select(*names))


Spans = dict[MessageQueue, tuple[int, int, int]]
"""The first and last archived offset of each queue, and their number."""


def archived_spans(archived: DataFrame, topic: str) -> Spans:
    """The archived offsets of a topic."""
    from pyspark.sql.functions import count
    from pyspark.sql.functions import max as most
    from pyspark.sql.functions import min as least

    offsets = "queue_offset"
    rows: list[Any] = (
        archived.groupBy("broker", "queue_id")
        .agg(least(offsets).alias("first"), most(offsets).alias("last"), count(offsets).alias("rows"))
        .collect()
    )
    return {
        MessageQueue(topic, row["broker"] or "", row["queue_id"]): (row["first"], row["last"], row["rows"])
        for row in rows
    }


def live_begins(spans: Spans, low: QueueOffsets, high: QueueOffsets) -> QueueOffsets | None:
    """Where to read each queue from so that nothing is read twice; None if messages must be compared.
    ConfigError if a queue ends before its archive."""
    begins = dict(low)
    for queue, (first, last, rows) in spans.items():
        if queue not in high:
            continue
        if last >= high[queue]:
            raise ConfigError(
                f"topic {queue.topic!r}: queue {queue.queue_id} of broker {queue.broker_name!r} ends at "
                f"offset {high[queue]}, but offset {last} of it is archived: the topic was recreated, or "
                "messages were lost, and offsets are ambiguous; query "
                f"`{queue.topic}__live` and `{queue.topic}__archive` instead"
            )
        if last < low[queue]:
            continue
        if first > low[queue] or rows != last - first + 1:
            return None
        begins[queue] = last + 1
    return begins
