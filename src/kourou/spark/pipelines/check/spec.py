"""PipelineSpec: what a pipeline's file declares, checked, and with all paths absolute.

`line` is where a part begins in the file, for errors that show only when Spark looks at it.
Not here: how it comes from YAML (checking.py), what becomes of it (run.py).
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
    """A column of the message beside those of its value: `born_timestamp bigint as born`."""

    name: str
    type: str
    alias: str

    @property
    def ddl(self) -> str:
        """As the source's schema has it."""
        return f"`{self.name}` {self.type}"


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """What the bodies of a topic are."""

    format: ValueFormat
    schema: str | None = None
    """DDL for JSON (None: found in a sample), Avro's JSON for Avro."""
    fields: tuple[str, ...] = ()
    """The names at the top of the schema, where it is given as DDL."""
    required: tuple[str, ...] = ()
    """Those that say NOT NULL."""
    sample_rows: int = 1_000


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may come: Spark forgets state that is older by so much than the newest row."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Topics, or a store's folder. `options` are those of the format `rocketmq`."""

    name: str
    line: int
    options: Mapping[str, str]
    is_stream: bool
    value: ValueSpec | None = None
    columns: tuple[MessageColumn, ...] = ()
    """Those that were asked for; empty: the usual ones."""
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class LakeSource:
    """A table in files, read whole when the pipeline starts."""

    name: str
    line: int
    table: LakeTable
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """A table or query of a database. `options` are those of Spark's format `jdbc`."""

    name: str
    line: int
    options: Mapping[str, str]
    is_stream: bool = False


SourceSpec = TopicSource | LakeSource | JdbcSource


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query over the views of what comes before it."""

    name: str
    line: int
    sql: str
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function of DataFrames, `path` as `package.module:function`; how it is called its import shows."""

    name: str
    line: int
    path: str
    path_line: int
    inputs: tuple[str, ...]
    """Those that were asked for; empty: by the function."""
    before: tuple[str, ...]
    """All that it may use."""
    watermark: Watermark | None = None

    @property
    def module(self) -> str:
        return self.path.partition(":")[0]

    @property
    def function_name(self) -> str:
        """What it is called there."""
        return self.path.partition(":")[2]


StepSpec = SqlStep | PythonStep


@dataclass(frozen=True, slots=True)
class Rows:
    """What all sinks have: where rows come from, and how the parts of the pipeline are called."""

    name: str
    line: int
    origin: str
    """The source or step."""
    mode: str = "append"


@dataclass(frozen=True, slots=True)
class MessageParts:
    """Which columns become which part of a message. `value`: `json` of all columns or of some, `row` when
    the columns are parts of messages already, or the one column that is the body."""

    value: Literal["json", "row", "column"] = "json"
    columns: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    """Column of the sink (`key`, `tags`, …) by column of the rows."""
    properties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic. `options` are those of the format `rocketmq`."""

    rows: Rows
    options: Mapping[str, str]
    message: MessageParts


@dataclass(frozen=True, slots=True)
class LakeSink:
    """A table in files."""

    rows: Rows
    table: LakeTable


@dataclass(frozen=True, slots=True)
class JdbcSink:
    """A table of a database. `options` are those of Spark's format `jdbc`, `dbtable` among them."""

    rows: Rows
    options: Mapping[str, str]
    exactly_once: bool = True


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Standard output."""

    rows: Rows
    num_rows: int = 20
    truncate: bool = True


SinkSpec = TopicSink | LakeSink | JdbcSink | ConsoleSink


@dataclass(frozen=True, slots=True)
class BadRecords:
    """What becomes of values that do not fit: `fail` when neither is given."""

    line: int = 0
    topic_options: Mapping[str, str] | None = None
    folder: str | None = None

    @property
    def fail(self) -> bool:
        """Whether such a value ends the pipeline."""
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
    """As DataStreamWriter.trigger takes it; empty: the next batch as soon as there is something."""
    checkpoint: Path | None
    settings: Mapping[str, str]
    jars: tuple[str, ...] = ()

    @property
    def is_stream(self) -> bool:
        """Whether a source is a stream; else the pipeline runs once over what is there."""
        return any(source.is_stream for source in self.sources)

    @property
    def topics(self) -> list[TopicSource]:
        """The sources that are topics."""
        return [source for source in self.sources if isinstance(source, TopicSource)]
