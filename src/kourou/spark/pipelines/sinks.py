"""The sinks of a pipeline: rows converted for each, and written, as a stream or once.

Every sink of a stream is a query of its own, with its own checkpoint below that of the pipeline. The sink
`console` prints the first rows of each batch on standard output, as a table or as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from kourou.errors import ConfigError
from kourou.spark.pipelines.check.document import nearest
from kourou.spark.pipelines.check.spec import (
    ConsoleSink,
    JdbcSink,
    LakeSink,
    MessageParts,
    PipelineSpec,
    SinkSpec,
    TopicSink,
)
from kourou.spark.pipelines.jdbc import at_least_once_writer, exactly_once_writer, save, with_driver
from kourou.spark.pipelines.lake.lake import lake_writer, write_batch
from kourou.spark.pipelines.sql.row_texts import as_json as rows_as_json
from kourou.spark.pipelines.sql.row_texts import as_texts, number_columns, text_rows, unique_names
from kourou.spark.pipelines.sql.sql_names import quoted
from kourou.spark.pipelines.topic_guarantee import guaranteed_options
from kourou.spark.pipelines.whole_batch import compute
from kourou.spark.pipelines.written_rows import WrittenRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.streaming.query import StreamingQuery

# Columns that the sink requires in a certain type.
_CASTS: Final = {"queue_id": "int", "delay_ms": "bigint"}
_TRUNCATED_CHARS: Final = 20
_NULL: Final = "NULL"
# Keeps the tables of several sinks apart.
_lock = threading.Lock()


class SinkRun:
    """One running sink."""

    def __init__(
        self, sink: SinkSpec, frame: DataFrame, spec: PipelineSpec, *, as_json: bool = False
    ) -> None:
        """ConfigError if the rows lack columns of the sink."""
        self.name = sink.rows.name
        # Spark counts rows sent to topics.
        self.written = None if isinstance(sink, TopicSink) else WrittenRows()
        self._sink = sink
        self._spec = spec
        self._as_json = as_json
        self._frame = fitted(sink, frame)

    def start(self) -> StreamingQuery:
        sink = self._sink
        writer = stream_writer(self._frame, self._spec, self.name).outputMode(sink.rows.mode)
        if isinstance(sink, TopicSink):
            options = self._topic_options(sink)
            return writer.format("rocketmq").options(**options).start()
        assert self.written is not None
        return writer.foreachBatch(self.written.counting(self._batch_writer(self._app_id))).start()

    def write(self) -> int | None:
        """Write all rows once; returns their number, if known."""
        sink = self._sink
        if isinstance(sink, ConsoleSink):
            return show_rows(self._frame, sink, None, as_json=self._as_json)
        if isinstance(sink, LakeSink):
            # Each run adds its rows.
            run_id = f"{self._app_id}:{uuid.uuid4()}"
            return write_batch(sink.table, self._frame, app_id=run_id, batch_id=0)
        counted, count = observed(self._frame)
        if isinstance(sink, JdbcSink):
            save(counted, with_driver(sink.options, self._spec.jars), sink.rows.mode)
        else:
            counted.write.format("rocketmq").options(**sink.options).mode("append").save()
        return count()

    def _topic_options(self, sink: TopicSink) -> dict[str, str]:
        return guaranteed_options(
            sink.options,
            sink.guarantee,
            checkpoint=self._checkpoint,
            columns=self._frame.columns,
        )

    @property
    def _checkpoint(self) -> Path:
        assert self._spec.checkpoint is not None  # checked with the file
        return self._spec.checkpoint / self.name

    @property
    def _app_id(self) -> str:
        return f"{self._spec.name}/{self.name}"

    def _batch_writer(self, app_id: str) -> Callable[[DataFrame, int], int | None]:
        sink = self._sink
        if isinstance(sink, LakeSink):
            return lake_writer(sink.table, app_id=app_id, checkpoint=self._checkpoint)
        if isinstance(sink, JdbcSink):
            options = with_driver(sink.options, self._spec.jars)
            return (
                exactly_once_writer(options, app_id=app_id, checkpoint=self._checkpoint)
                if sink.exactly_once
                else at_least_once_writer(options)
            )
        assert isinstance(sink, ConsoleSink)
        as_json = self._as_json

        def show(frame: DataFrame, batch_id: int) -> int:
            rows = frame.persist()
            try:
                compute(rows)
                return show_rows(rows, sink, batch_id, as_json=as_json)
            finally:
                rows.unpersist()

        return show


def stream_writer(frame: DataFrame, spec: PipelineSpec, name: str) -> DataStreamWriter:
    """A writer of a query, with its name, trigger and checkpoint."""
    assert spec.checkpoint is not None  # checked with the file
    writer = frame.writeStream.queryName(f"{spec.name}/{name}").trigger(**(spec.trigger or _AT_ONCE))
    return writer.option("checkpointLocation", str(spec.checkpoint / name))


_AT_ONCE: Final = {"processingTime": "0 seconds"}


# -- rows ------------------------------------------------------------------------------------------


def fitted(sink: SinkSpec, frame: DataFrame) -> DataFrame:
    """The rows in the sink's format. ConfigError for missing columns."""
    if isinstance(sink, TopicSink):
        return messages(frame, sink.message)
    if isinstance(sink, LakeSink):
        _check_columns(frame, sink.table.partition_by, "partitionBy")
        _check_columns(frame, sink.table.key, "key")
    return frame


def messages(frame: DataFrame, message: MessageParts) -> DataFrame:
    """Rows whose columns are the parts of messages."""
    from pyspark.sql import functions as F

    if message.value == "row":
        return frame
    _check_columns(frame, message.columns, "value")
    _check_columns(frame, message.parts.values(), "key, tags and the like")
    _check_columns(frame, message.properties, "properties")
    if message.value == "column":
        body = F.col(quoted(message.columns[0]))
    else:
        names = message.columns or frame.columns
        body = F.to_json(F.struct(*(F.col(quoted(name)) for name in names)))
    parts = [
        F.col(quoted(column)).cast(_CASTS.get(part, "string")).alias(part)
        for part, column in message.parts.items()
    ]
    if message.properties:
        parts.append(_properties(message.properties).alias("properties"))
    return frame.select(body.alias("value"), *parts)


def _properties(names: tuple[str, ...]) -> Column:
    """A map of the columns that are not null."""
    from pyspark.sql import functions as F

    pairs = [part for name in names for part in (F.lit(name), F.col(quoted(name)).cast("string"))]
    return F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())


def _check_columns(frame: DataFrame, names: Iterable[str], key: str) -> None:
    known = {name.lower() for name in frame.columns}
    for name in names:
        if name.lower() not in known:
            raise ConfigError(f"{key}: its rows have no column {name}; {nearest(name, frame.columns)}")


def observed(frame: DataFrame) -> tuple[DataFrame, Callable[[], int | None]]:
    """The same rows, and a function that returns their number once they are written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    counted = frame.observe(observation, F.count(F.lit(1)).alias("rows"))
    found: list[int] = []

    def ask() -> None:
        found.append(int(observation.get["rows"]))

    def count() -> int | None:
        # Spark reports it after the write, and perhaps never for an empty plan.
        asking = threading.Thread(target=ask, name="row-count", daemon=True)
        asking.start()
        asking.join(timeout=5)
        return found[0] if found else None

    return counted, count


def show_rows(
    frame: DataFrame,
    sink: ConsoleSink,
    batch_id: int | None,
    *,
    as_json: bool,
    stream: TextIO | None = None,
) -> int:
    """Print the first rows; returns their number. Empty batches are not shown."""
    wanted = rows_as_json(frame) if as_json else as_texts(frame)
    rows = list(text_rows(wanted, sink.num_rows + 1))
    shown = rows[: sink.num_rows]
    name = sink.rows.name
    lines = (
        [json.dumps({"type": "row", "sink": name, "row": json.loads(row[0] or "{}")}) for row in shown]
        if as_json
        else _table(frame, sink, batch_id, shown, has_more=len(rows) > len(shown))
    )
    if shown or batch_id is None:
        with _lock:
            print(*lines, sep="\n", file=stream or sys.stdout, flush=True)
    return len(shown)


def _table(
    frame: DataFrame,
    sink: ConsoleSink,
    batch_id: int | None,
    rows: Sequence[tuple[str | None, ...]],
    *,
    has_more: bool,
) -> list[str]:
    title = sink.rows.name if batch_id is None else f"{sink.rows.name}, batch {batch_id}"
    limit = _TRUNCATED_CHARS if sink.truncate else None
    lines = draw_table(unique_names(frame.columns), number_columns(frame), rows, limit)
    return [title, *lines, *([f"only showing the first {len(rows)} rows"] if has_more else [])]


def draw_table(
    names: Sequence[str],
    are_numbers: Sequence[bool],
    rows: Sequence[tuple[str | None, ...]],
    limit: int | None,
) -> list[str]:
    """The lines of a table in Spark's style. Unprintable characters are escaped."""
    cells = [[_cell(text, limit) for text in row] for row in (tuple(names), *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(names))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    drawn = [_line(row, widths, are_numbers) for row in cells]
    return [rule, drawn[0], rule, *drawn[1:], rule]


def _line(row: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]) -> str:
    padded = [
        text.rjust(width) if is_number else text.ljust(width)
        for text, width, is_number in zip(row, widths, are_numbers, strict=True)
    ]
    return "| " + " | ".join(padded) + " |"


def _cell(text: str | None, limit: int | None) -> str:
    shown = _NULL if text is None else text
    if not shown.isprintable():
        shown = "".join(
            sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in shown
        )
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"
