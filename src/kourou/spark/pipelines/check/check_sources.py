"""Checks the sources of a pipeline's file: topics, tables in files, database tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kourou.errors import ConfigError
from kourou.spark.pipelines.check.ddl import parse_ddl
from kourou.spark.pipelines.check.document import nearest
from kourou.spark.pipelines.check.section import Section
from kourou.spark.pipelines.check.spec import (
    JdbcSource,
    LakeSource,
    MessageColumn,
    SourceSpec,
    TopicSource,
    ValueFormat,
    ValueSpec,
    Watermark,
)
from kourou.spark.pipelines.lake.lake import LakeTable
from kourou.spark.source.columns import check_schema, known_columns
from kourou.spark.source.options import SOURCE_OPTION_NAMES, SourceOptions

LAKE_PACKAGES: Final = {"parquet": "pyarrow", "delta": "deltalake", "iceberg": "pyiceberg"}
ICEBERG_KEYS: Final = ("table", "catalog")
NAME_FORM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOPIC_KEYS: Final = ("topic", "subscribePattern", "assign", "store")
_OTHER_KEYS: Final = ("jdbc", *LAKE_PACKAGES)
# Spark gets these in another way.
_NOT_HERE: Final = frozenset({"subscribe", "nameServer", "columns"})
SOURCE_OPTIONS: Final = tuple(name for name in SOURCE_OPTION_NAMES if name not in _NOT_HERE)
TOPIC_KEYS: Final = ("topic", "stream", "value", "columns", "watermark", *SOURCE_OPTIONS)
TIME_UNITS: Final = (
    "milliseconds", "millisecond", "seconds", "second", "minutes", "minute", "hours", "hour", "days", "day",
)  # fmt: skip
VALUE_KEYS: Final = ("format", "schema", "schemaFile", "sampleRows")
_VALUE_FORMATS: Final[dict[str, ValueFormat]] = {"json": "json", "string": "string", "avro": "avro"}
_INFER: Final = "infer"
_COLUMN: Final = re.compile(
    r"(?P<name>[\w.-]+)(?:\s+(?!as\s)(?P<type>\S+))?(?:\s+as\s+(?P<alias>\w+))?", re.I
)
_ENDINGS: Final = ("endingOffsets", "endingTimestamp")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings that apply to all parts of a file."""

    namesrv: str | None
    environ: Mapping[str, str]


def check_source(name: str, section: Section, around: Surroundings) -> SourceSpec | None:
    """One source; None if not even its kind is clear."""
    if not NAME_FORM.fullmatch(name):
        section.mistakes.add(
            section.begin,
            f"source {name!r}: a name may only have letters, digits and _, as it becomes a view",
        )
    kinds = [key for key in (*_TOPIC_KEYS[:3], *_OTHER_KEYS) if section.has(key)]
    if not kinds and section.has("store"):
        kinds = ["store"]
    if len(kinds) != 1:
        _check_kinds(section, kinds)
        return None
    if kinds[0] == "jdbc":
        return JdbcSource(name, section.begin, jdbc_options(section, is_sink=False))
    if kinds[0] in LAKE_PACKAGES:
        return _lake(name, section, kinds[0])
    return _topic(name, section, around)


def _check_kinds(section: Section, kinds: list[str]) -> None:
    if kinds:
        section.mistake(kinds[1], f"{' and '.join(kinds)} are mutually exclusive: a source is one of them")
        return
    known = ["topic", *_TOPIC_KEYS[1:], *_OTHER_KEYS]
    near = next((f"; {words}" for name in section.names if "did you" in (words := nearest(name, known))), "")
    section.mistake("", f"nothing to read: set one of {', '.join(known)}{near}")


# -- topics ----------------------------------------------------------------------------------------


def _topic(name: str, section: Section, around: Surroundings) -> TopicSource:
    topics = section.words("topic")
    is_stream = section.flag("stream", not section.has("store"))
    value = _value(section)
    columns = _columns(section)
    watermark = check_watermark(section)
    options = section.options(SOURCE_OPTIONS)
    if "store" in options:
        options["store"] = str((section.folder / options["store"]).resolve())
    elif around.namesrv is not None:
        options.setdefault("namesrv", around.namesrv)
    if topics:
        options["subscribe"] = ",".join(topics)
    if is_stream and "startingTimestamp" not in options:
        options.setdefault("startingOffsets", "earliest")
    section.finish(TOPIC_KEYS)
    _check_together(section, options, is_stream, value, columns)
    try:
        SourceOptions.parse(options, around.environ)
    except ConfigError as error:
        section.tell(problem.replace("option subscribe=", "topic ") for problem in error.problems)
    return TopicSource(name, section.begin, options, is_stream, value, columns, watermark)


def _check_together(
    section: Section,
    options: Mapping[str, str],
    is_stream: bool,
    value: ValueSpec | None,
    columns: tuple[MessageColumn, ...],
) -> None:
    if is_stream:
        for name in (name for name in _ENDINGS if name in options):
            section.mistake(name, "a stream has no end; set stream: false to read the topic once")
        if "store" in options:
            section.mistake("stream", "a store is read once; remove stream: true")
    elif options.get("startingOffsets", "").lower() == "latest":
        section.mistake("startingOffsets", "latest leaves nothing to read with stream: false")
    if options.get("rowFormat", "rocketmq").lower() != "rocketmq" and (value or columns):
        section.mistake("rowFormat", "value and columns require RocketMQ's rows; remove rowFormat")


def _columns(section: Section) -> tuple[MessageColumn, ...]:
    """`key`, `born_timestamp bigint`, `property_amount double as amount`."""
    known = known_columns("rocketmq")
    found = []
    for text in section.words("columns"):
        match = _COLUMN.fullmatch(text)
        if match is None:
            section.mistake(
                "columns", f"{text!r}: the format is NAME, NAME TYPE, or NAME TYPE as ANOTHER_NAME"
            )
            continue
        name = match["name"]
        usual = known[name].types[0] if name in known else "string"
        kind = (match["type"] or usual).lower()
        try:
            check_schema({name: kind}, "rocketmq")
        except ConfigError as error:
            words = error.problems[0].removeprefix("invalid schema: ")
            section.mistake("columns", words)
            continue
        found.append(MessageColumn(name, kind, match["alias"] or name))
    kinds = dict.fromkeys((column.name, column.type) for column in found)
    if len(kinds) > len(dict(kinds)):
        section.mistake("columns", "a column can have only one type")
    names = [column.alias.lower() for column in found]
    for alias in sorted({alias for alias in names if names.count(alias) > 1}):
        section.mistake("columns", f"{alias} is used twice")
    return tuple(found)


def _value(section: Section) -> ValueSpec | None:
    value = section.take("value")
    if value is None:
        return None
    if value.text is not None:
        return ValueSpec(_format(section, "value", value.text.strip()))
    inner = section.section("value")
    assert inner is not None  # it is there
    kind = _format(inner, "format", inner.needed("format"))
    spec = _AS[kind](inner)
    inner.finish(VALUE_KEYS)
    return spec


def _format(section: Section, key: str, text: str) -> ValueFormat:
    if text and text not in _VALUE_FORMATS:
        section.mistake(key, f"unknown format {text!r}; {nearest(text, list(_VALUE_FORMATS))}")
    return _VALUE_FORMATS.get(text, "string")


def _string(section: Section) -> ValueSpec:
    return ValueSpec("string")


def _json(section: Section) -> ValueSpec:
    sample_rows = section.number("sampleRows", ValueSpec("json").sample_rows)
    schema = _schema_text(section)
    if schema is None or schema == _INFER:
        return ValueSpec("json", sample_rows=sample_rows)
    if section.has("sampleRows"):
        section.mistake(
            "sampleRows", "it only applies to a schema inferred from a sample; here the schema is given"
        )
    try:
        fields = parse_ddl(schema)
    except ValueError as error:
        section.mistake("schema" if section.has("schema") else "schemaFile", str(error))
        return ValueSpec("json", schema)
    names = tuple(field.name for field in fields)
    required = tuple(field.name for field in fields if field.is_required)
    return ValueSpec("json", schema, names, required)


def _avro(section: Section) -> ValueSpec:
    import json

    schema = _schema_text(section)
    key = "schema" if section.has("schema") else "schemaFile"
    if schema is None:
        section.mistake(key, "avro needs a schema: schema (as JSON), or schemaFile")
        return ValueSpec("avro")
    try:
        tree = json.loads(schema)
    except ValueError as error:
        section.mistake(key, f"an Avro schema must be valid JSON: {error}")
        return ValueSpec("avro", schema)
    fields = tree.get("fields") if isinstance(tree, dict) and tree.get("type") == "record" else None
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        section.mistake(key, "the schema of a message must be a record with fields")
        return ValueSpec("avro", schema)
    names = tuple(str(field.get("name")) for field in fields)
    return ValueSpec("avro", schema, names)


_AS: Final = {"json": _json, "string": _string, "avro": _avro}


def _schema_text(section: Section) -> str | None:
    """`schema`, or the content of `schemaFile`."""
    text = section.text("schema")
    if not section.has("schemaFile"):
        return text
    path = Path(section.path("schemaFile"))
    if text is not None:
        section.mistake("schemaFile", "schema and schemaFile are mutually exclusive: use one of them")
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        section.mistake("schemaFile", f"cannot read it: {error}")
        return None


def check_watermark(section: Section) -> Watermark | None:
    """`watermark: {column: at, delay: 10 minutes}`."""
    inner = section.section("watermark")
    if inner is None:
        return None
    watermark = Watermark(inner.needed("column"), inner.needed("delay"))
    check_duration(inner, "delay", watermark.delay)
    inner.finish(["column", "delay"])
    return watermark


def check_duration(section: Section, key: str, text: str | None) -> None:
    """A duration in Spark's format."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]+)", text or "")
    if match is None:
        section.mistake(key, "must be a duration such as 10 seconds")
    elif match[2] not in TIME_UNITS:
        section.mistake(key, f"unknown unit {match[2]!r}; {nearest(match[2], list(TIME_UNITS))}")


# -- tables ----------------------------------------------------------------------------------------


def _lake(name: str, section: Section, kind: str) -> LakeSource | None:
    table = lake_table(section, kind)
    section.finish([kind, *(ICEBERG_KEYS if kind == "iceberg" else ())])
    if table is not None and not table.folder.exists():
        section.mistake(kind, f"no such file or folder: {table.path}")
    return None if table is None else LakeSource(name, section.begin, table)


def lake_table(section: Section, kind: str) -> LakeTable | None:
    """The table of a source or sink."""
    if find_spec(LAKE_PACKAGES[kind]) is None:
        section.mistake(kind, f"requires {LAKE_PACKAGES[kind]}: pip install 'kourou[lake]'")
    path = section.path(kind)
    try:
        if kind != "iceberg":
            return LakeTable(kind, path)
        name, catalog = section.text("table", "lake.rows"), section.text("catalog", "")
        return LakeTable(kind, path, name=name or "", catalog=catalog or "")
    except ConfigError as error:
        section.tell(error.problems if path else ())
        return None


def jdbc_options(section: Section, *, is_sink: bool) -> dict[str, str]:
    """The options of Spark's format `jdbc`: `jdbc` is the URL, all others have Spark's names."""
    url = section.needed("jdbc")
    if url and not url.startswith("jdbc:"):
        section.mistake("jdbc", f"{url!r} is not a database URL; the format is jdbc:postgresql://host/name")
    options = section.all_options()
    small = {option.lower() for option in options}
    wanted = ["dbtable"] if is_sink else ["dbtable", "query"]
    if sum(option in small for option in wanted) != 1:
        section.mistake(
            "", f"give {' or '.join(wanted)}: {'where it writes' if is_sink else 'what it reads'}"
        )
    return {"url": url, **options}
