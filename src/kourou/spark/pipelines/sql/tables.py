"""TopicTables: a topic is a table. Views with the names of topics, created when a query names them.

`orders` has the live messages of the topic; with archives, those and the archived ones, each message once;
`orders__live` and `orders__archive` have one side only. In a stream `orders` has the arriving messages.
Not here: how archives and topics are combined (union_source.py), what happens to rows (sql.py).

Spark does not pass a Python source the columns that a query uses, and some are expensive to build. So they
are found in the query's text: columns that it does not name are left out; where a query may use columns
without naming them (`SELECT *`, NATURAL JOIN, …) all stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError
from kourou.protocol.names import is_inner_topic
from kourou.spark.pipelines.pipeline_errors import pipeline_errors, short_reason
from kourou.spark.pipelines.sql.sql_names import quoted, table_names
from kourou.spark.pipelines.sql.union_source import Archives, union_rows
from kourou.spark.pipelines.sql.value_forms import ValueForm, form_of, sampled_schema, with_value_columns
from kourou.spark.source.offsets import QueueOffsets, nested
from kourou.spark.source.options import PUSH_FILTERS_OPTION, SourceOptions
from kourou.spark.source.queue_lookup import offsets_or_raise
from kourou.spark.source.source_client import SourceClient
from kourou.wording import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIVE: Final = "__live"
ARCHIVE: Final = "__archive"
MESSAGE_TYPES: Final = {
    "key": "string",
    "value": "binary",
    "topic": "string",
    "broker": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "msg_id": "string",
    "tags": "string",
    "keys": "array<string>",
    "born_timestamp": "timestamp",
    "store_timestamp": "timestamp",
    "born_host": "string",
    "reconsume_times": "int",
    "properties": "map<string,string>",
}
"""The columns of the source."""
_SAMPLE_ROWS: Final = 1_000
_NOT_FOUND: Final = "TABLE_OR_VIEW_NOT_FOUND"
_UNRESOLVED: Final = "UNRESOLVED_COLUMN"
_MAX_TABLES: Final = 100
_NOT_CODE: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'", re.S)
_COUNT_ALL: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.I)
_STAR: Final = re.compile(r"(?:\bselect|\bdistinct|\ball|[,.(])\s*\*", re.I)
# Words with which a query may use columns without naming them.
_IMPLICIT: Final = frozenset({"natural", "table", "pivot", "unpivot", "identifier", "describe", "transform"})
_PROPERTY: Final = re.compile(r"\bproperty_\w+")
# Words, and the pipe operator, after which a table may be read again.
_AGAIN: Final = r"\b(?:from|select|table|join|union|except|intersect|minus)\b|\|>"
_ONE_TABLE: Final = re.compile(
    rf"^\s*select\b(?:(?!{_AGAIN}).)*\bfrom\s+(?:`[^`]+`|\w+)"
    r"(?:\s+(?:as\s+)?(?!(?:where|group|order|having|limit|join|cross|inner|left|right|full)\b)\w+)?"
    rf"\s*(?:(?:where|group|order|having|limit)\b(?:(?!{_AGAIN}).)*)?;?\s*$",
    re.I | re.S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What SQL sees as tables: topics, archives."""

    source: Mapping[str, str] = field(default_factory=dict)
    """Options of the format `rocketmq`; with `namesrv` topics are tables."""
    archives: tuple[str, ...] = ()
    """Folders of archives."""
    values: Mapping[str, ValueForm] = field(default_factory=dict)
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class TableNames:
    """The available tables: topics of the name server, and of archives."""

    live: frozenset[str] = frozenset()
    archived: frozenset[str] = frozenset()

    def topic_of(self, name: str) -> str:
        """The topic of a table name. ConfigError suggests the nearest one."""
        topics = self.live | self.archived
        base = self.base(name)
        if base in topics:
            return base
        # Case is ignored, as in SQL, where it is unambiguous.
        alike = [topic for topic in topics if topic.lower() == base.lower()]
        if len(alike) == 1:
            return alike[0]
        raise ConfigError(self._no_topic(base))

    def base(self, name: str) -> str:
        """The name without its suffix."""
        if name in self.live | self.archived:
            return name
        return name.removesuffix(LIVE).removesuffix(ARCHIVE)

    def shown(self) -> list[str]:
        """The names of user topics, sorted."""
        return sorted(topic for topic in self.live | self.archived if not is_inner_topic(topic))

    def _no_topic(self, name: str) -> str:
        there_are = self.shown()
        folded = {topic.lower(): topic for topic in (*there_are, *self.live, *self.archived)}
        near = nearest(name, folded.values())
        # `FROM orders-eu` is read as `orders - eu`.
        cut_off = [
            topic for small, topic in folded.items() if re.match(re.escape(name.lower()) + r"\W", small)
        ]
        if cut_off:
            hint = f"did you mean {quoted(cut_off[0])}? Quote such names in backticks"
        elif near:
            hint = f"did you mean {quoted(near)}?"
        elif there_are:
            more = f" and {len(there_are) - 20} more" if len(there_are) > 20 else ""
            hint = f"there are {', '.join(there_are[:20])}{more}"
        else:
            hint = "there are none"
        return f"there is no topic {name!r}; {hint}"


class TopicTables:
    """Creates views for the queries of one session."""

    def __init__(
        self,
        spark: SparkSession,
        options: TableOptions,
        names: TableNames,
        client: Callable[[], SourceClient],
    ) -> None:
        self._spark = spark
        self._options = options
        self._names = names
        self._client = client
        self._archives = Archives(spark, options.archives)
        self._made: list[str] = []
        self._samples: dict[str, str] = {}

    def query(self, sql: str, params: Mapping[str, str] | None = None) -> DataFrame:
        """The DataFrame of a query over topics, with texts for `:name`. ConfigError if the query is
        invalid."""
        from pyspark.errors import AnalysisException, PySparkException

        names = table_names(sql)
        if len(set(names)) > len({name.lower() for name in names}):
            # Topics may differ only in case; to Spark their views would be the same.
            self._spark.conf.set("spark.sql.caseSensitive", "true")
        try:
            return self._resolved(sql, params, columns_of=sql)
        except AnalysisException as error:
            if not str(error.getCondition()).startswith(_UNRESOLVED):
                raise ConfigError(short_reason(error)) from error
        except PySparkException as error:
            raise ConfigError(short_reason(error)) from error
        # The query uses a column that was left out, or that does not exist: with all columns Spark lists the
        # available ones.
        self.drop_views()
        try:
            return self._resolved(sql, params, columns_of=None)
        except PySparkException as error:
            raise ConfigError(short_reason(error)) from error

    def _resolved(self, sql: str, params: Mapping[str, str] | None, columns_of: str | None) -> DataFrame:
        from pyspark.errors import AnalysisException

        for _ in range(_MAX_TABLES):
            try:
                return self._spark.sql(sql, dict(params or {}))
            except AnalysisException as error:
                if error.getCondition() != _NOT_FOUND:
                    raise
                self._add(_relation(error), sql, columns_of)
        raise ConfigError(f"the query uses more than {_MAX_TABLES} tables")

    def drop_views(self) -> None:
        """Drop all views: the session may outlive the query."""
        for name in self._made:
            self._spark.sql(f"DROP VIEW IF EXISTS {quoted(name)}")
        self._made.clear()

    def _add(self, name: str, sql: str, columns_of: str | None) -> None:
        topic = self._names.topic_of(name)
        if name in self._made:
            raise ConfigError(f"cannot find the table {name} in the query; name it without a catalog")
        with pipeline_errors(f"topic {topic}"):
            frame = self._frame(topic, name, sql, columns_of)
        frame.createOrReplaceTempView(quoted(name))
        self._made.append(name)

    # -- one table -------------------------------------------------------------------------------

    def _frame(self, topic: str, name: str, sql: str, columns_of: str | None) -> DataFrame:
        form = form_of(topic, self._options.values)
        schema = form.schema
        if form.kind == "json" and schema is None:
            if topic not in self._samples:
                self._samples[topic] = self._sampled(topic)
            schema = self._samples[topic]
        columns = self._columns(schema, columns_of)
        properties = named_properties(sql)
        frame = self._rows(topic, name, columns, properties, sql)
        if "value" in columns and form.kind != "binary":
            frame = frame.withColumn("value", frame["value"].cast("string"))
        return frame if schema is None or "value" not in columns else with_value_columns(frame, schema)

    def _columns(self, schema: str | None, sql: str | None) -> list[str]:
        from pyspark.sql.types import StructType

        if sql is None:
            return list(MESSAGE_TYPES)
        named = named_columns(sql, MESSAGE_TYPES)
        if named is None:
            return list(MESSAGE_TYPES)
        fields = StructType.fromDDL(schema).names if schema is not None else []
        if named_columns(sql, fields) or any(f"message_{name}" in sql.lower() for name in MESSAGE_TYPES):
            named |= {"value", *(name for name in MESSAGE_TYPES if f"message_{name}" in sql.lower())}
        # At least one column is needed to make rows.
        return [name for name in MESSAGE_TYPES if name in (named or {"queue_offset"})]

    def _rows(self, topic: str, name: str, columns: list[str], properties: list[str], sql: str) -> DataFrame:
        side = name[len(self._names.base(name)) :]
        is_live, is_archived = topic in self._names.live, topic in self._names.archived
        if side == ARCHIVE and not is_archived:
            raise ConfigError(f"topic {topic!r} is not in any archive given with --archive")
        if side == LIVE and not is_live:
            raise ConfigError(f"topic {topic!r} is only in the archive: the name server does not know it")
        if side == ARCHIVE or not is_live:
            return self._archives.rows(topic, columns, properties)
        pushes = reads_one_table_once(sql) and not self._options.is_stream
        if side == LIVE or not is_archived or self._options.is_stream:
            return self._live(topic, columns, properties, **{PUSH_FILTERS_OPTION: str(pushes).lower()})
        return union_rows(
            self._archives,
            topic,
            columns,
            properties,
            self._client(),
            lambda wanted, options: self._live(topic, wanted, properties, **options),
        )

    def _live(self, topic: str, columns: list[str], properties: list[str], **options: str) -> DataFrame:
        reader = self._spark.readStream if self._options.is_stream else self._spark.read
        fields = [f"`{name}` {MESSAGE_TYPES[name]}" for name in columns]
        fields += [f"`{name}` string" for name in properties]
        given = {**self._options.source, **options, "subscribe": topic}
        return reader.format("rocketmq").options(**given).schema(", ".join(fields)).load()

    def _sampled(self, topic: str) -> str:
        """The schema of the newest messages, or of some archived ones."""
        if topic not in self._names.live:
            rows = self._archives.rows(topic, ["value"], []).limit(_SAMPLE_ROWS)
        else:
            starting = json.dumps(nested(_newest(self._client(), topic)))
            given = {name: self._options.source[name] for name in _connection_names(self._options.source)}
            rows = (
                self._spark.read.format("rocketmq")
                .schema("value binary")
                .options(**given, subscribe=topic, startingOffsets=starting)
                .load()
                .limit(_SAMPLE_ROWS)
            )
        return sampled_schema(topic, rows.selectExpr("cast(value as string)"))


def find_names(options: TableOptions, client: Callable[[], SourceClient]) -> frozenset[str]:
    """The topics of the name server, if there is one. KourouError if it does not answer."""
    if not has_namesrv(options):
        return frozenset()
    return frozenset(client().topic_names())


def has_namesrv(options: TableOptions) -> bool:
    """Whether live topics can be read."""
    return bool(options.source.get("namesrv"))


def connection_client(options: TableOptions) -> SourceClient:
    """A client for the name server of the options. ConfigError if the options are invalid."""
    parsed = SourceOptions.parse({**options.source, "subscribe": "any"})
    return SourceClient(parsed.connection)


def check_names(sql: str, names: TableNames) -> None:
    """ConfigError for unknown topics, before Spark starts."""
    problems: list[str] = []
    for name in table_names(sql):
        try:
            names.topic_of(name)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)


def _newest(client: SourceClient, topic: str) -> QueueOffsets:
    queues = client.routes([topic]).get(topic, [])
    low, high = offsets_or_raise(client.min_offsets(queues)), offsets_or_raise(client.max_offsets(queues))
    share = max(1, _SAMPLE_ROWS // max(1, len(queues)))
    return {queue: max(low[queue], high[queue] - share) for queue in queues}


def _connection_names(options: Iterable[str]) -> list[str]:
    return [
        name for name in options if not name.lower().startswith(("starting", "ending", "subexp", "express"))
    ]


def _relation(error: object) -> str:
    """The name that Spark did not find, unquoted."""
    parameters = error.getMessageParameters() or {}  # type: ignore[attr-defined]
    name = str(parameters.get("relationName", ""))
    return name.removeprefix("`").removesuffix("`").replace("``", "`")


def named_columns(sql: str, names: Iterable[str]) -> set[str] | None:
    """The columns in `names` that the query may use; None for all."""
    text = _COUNT_ALL.sub(" ", _NOT_CODE.sub(" ", sql))
    words = re.findall(r"\w+", text.lower())
    if not words or words[0] not in ("select", "with"):
        return None
    if _STAR.search(text) or "|>" in text or not _IMPLICIT.isdisjoint(words):
        return None
    # A FROM without a SELECT yields all columns.
    if words.count("from") > words.count("select"):
        return None
    return {name for name in names if name.lower() in words}


def named_properties(sql: str) -> list[str]:
    """The columns `property_NAME` in the query, as written."""
    return sorted(set(_PROPERTY.findall(_NOT_CODE.sub(" ", sql))))


def reads_one_table_once(sql: str) -> bool:
    """Whether the query's filters apply to a single scan of a single table."""
    return _ONE_TABLE.match(_NOT_CODE.sub("''", sql)) is not None
