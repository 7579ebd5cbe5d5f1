"""PipelineSpec: the checked content of a pipeline's file, with absolute paths.

`line` is where a part begins in the file, for errors that only Spark finds. Not here: reading the YAML
(checking.py), running it (run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kourou.spark.pipelines.lake.lake import LakeTable

ValueFormat = Literal["json", "string", "avro"]
StepFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """A column of the message in addition to those of its value: `born_timestamp bigint as born`."""

    name: str
    type: str
    alias: str

    @property
    def ddl(self) -> str:
        """The column in the DDL of the source's schema."""
        return f"`{self.name}` {self.type}"


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """The format of a topic's bodies."""

    format: ValueFormat
    schema: str | None = None
    """DDL for JSON (None: inferred from a sample), JSON for Avro."""
    fields: tuple[str, ...] = ()
    """The top-level names of the schema, if it is given as DDL."""
    required: tuple[str, ...] = ()
    """The names declared NOT NULL."""
    sample_rows: int = 1_000


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may arrive: Spark drops state that is older than the newest row by this much."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Topics, or a store's folder. `options` are those of the format `rocketmq`."""

    name: str
    line: int
    options: Mapping[str, str] = field(repr=False)  # with keys and passwords
    is_stream: bool
    value: ValueSpec | None = None
    columns: tuple[MessageColumn, ...] = ()
    """The requested columns; empty for the default ones."""
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class LakeSource:
    """A table in files, read completely when the pipeline starts."""

    name: str
    line: int
    table: LakeTable
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """A table or query of a database. `options` are those of Spark's format `jdbc`."""

    name: str
    line: int
    options: Mapping[str, str] = field(repr=False)  # with keys and passwords
    is_stream: bool = False


SourceSpec = TopicSource | LakeSource | JdbcSource


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query over the views of earlier sources and steps."""

    name: str
    line: int
    sql: str
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function of DataFrames, `path` as `package.module:function`; its signature is known after the
    import."""

    name: str
    line: int
    path: str
    path_line: int
    inputs: tuple[str, ...]
    """The requested inputs; empty if the function determines them."""
    before: tuple[str, ...]
    """All names that it may use."""
    watermark: Watermark | None = None

    @property
    def module(self) -> str:
        return self.path.partition(":")[0]

    @property
    def function_name(self) -> str:
        """The function's name in its module."""
        return self.path.partition(":")[2]


StepSpec = SqlStep | PythonStep


@dataclass(frozen=True, slots=True)
class Rows:
    """What all sinks have: the origin of rows, and the name of the sink."""

    name: str
    line: int
    origin: str
    """The source or step."""
    mode: str = "append"


@dataclass(frozen=True, slots=True)
class MessageParts:
    """Which columns become which part of a message. `value`: `json` of all or some columns, `row` when the
    columns already are parts of messages, or the column that is the body."""

    value: Literal["json", "row", "column"] = "json"
    columns: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    """Column of the sink (`key`, `tags`, …) by column of the rows."""
    properties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic. `options` are those of the format `rocketmq`."""

    rows: Rows
    options: Mapping[str, str] = field(repr=False)  # with keys and passwords
    message: MessageParts
    guarantee: str | None = None
    """As the sink's option; None: exactly once if the brokers support it."""


@dataclass(frozen=True, slots=True)
class LakeSink:
    """A Delta, Iceberg or Parquet table to write to."""

    rows: Rows
    table: LakeTable


@dataclass(frozen=True, slots=True)
class JdbcSink:
    """A table of a database. `options` are those of Spark's format `jdbc`, `dbtable` among them."""

    rows: Rows
    options: Mapping[str, str] = field(repr=False)  # with keys and passwords
    exactly_once: bool = True


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """A sink that prints rows to standard output."""

    rows: Rows
    num_rows: int = 20
    truncate: bool = True


SinkSpec = TopicSink | LakeSink | JdbcSink | ConsoleSink


@dataclass(frozen=True, slots=True)
class BadRecords:
    """The destination of bad records: `fail` when neither is given."""

    line: int = 0
    topic_options: Mapping[str, str] | None = field(default=None, repr=False)
    folder: str | None = None

    @property
    def destination(self) -> str:
        """The destination as text: `topic orders-bad`; empty if a bad record fails the pipeline."""
        if self.topic_options is not None:
            return f"topic {self.topic_options['topic']}"
        return f"folder {self.folder}" if self.folder is not None else ""

    @property
    def fail(self) -> bool:
        """Whether a bad record fails the pipeline."""
        return self.topic_options is None and self.folder is None


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A whole pipeline."""

    file: Path
    name: str
    sources: tuple[SourceSpec, ...]
    steps: tuple[StepSpec, ...]
    sinks: tuple[SinkSpec, ...]
    bad_records: BadRecords
    trigger: Mapping[str, Any]
    """Arguments of DataStreamWriter.trigger; empty: the next batch starts as soon as there is data."""
    checkpoint: Path | None
    settings: Mapping[str, str]
    jars: tuple[str, ...] = ()

    @property
    def is_stream(self) -> bool:
        """Whether a source is a stream; otherwise the pipeline runs once over the stored data."""
        return any(source.is_stream for source in self.sources)

    @property
    def topics(self) -> list[TopicSource]:
        """The sources that are topics."""
        return [source for source in self.sources if isinstance(source, TopicSource)]
