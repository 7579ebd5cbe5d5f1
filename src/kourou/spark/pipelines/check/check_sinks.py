"""Checks the sinks of a pipeline's file, and the destination of bad records."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from kourou.errors import ConfigError
from kourou.spark.pipelines.check.check_sources import (
    ICEBERG_KEYS,
    LAKE_PACKAGES,
    Surroundings,
    jdbc_options,
    lake_table,
)
from kourou.spark.pipelines.check.document import Mistakes, Value, nearest
from kourou.spark.pipelines.check.section import Section
from kourou.spark.pipelines.check.spec import (
    BadRecords,
    ConsoleSink,
    JdbcSink,
    LakeSink,
    MessageParts,
    Rows,
    SinkSpec,
    TopicSink,
)
from kourou.spark.sink.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, SINK_OPTION_NAMES, SinkOptions

_GUARANTEE: Final = ("guarantee", "sinkId", "writeId", "replaceQuery", "stageTimeoutMs")
SINK_OPTIONS: Final = tuple(name for name in SINK_OPTION_NAMES if name not in ("topic", *_GUARANTEE))
# Keys of the file, and the columns of the sink that they fill.
PARTS: Final = {
    "key": "key",
    "tags": "tags",
    "shardingKey": "sharding_key",
    "queueId": "queue_id",
    "broker": "broker",
    "delayMs": "delay_ms",
    "topicColumn": "topic",
}
COMMON_KEYS: Final = ("from", "name", "mode")
# A batch of a stream has a number: it needs no writeId.
EXACTLY_ONCE_KEYS: Final = tuple(name for name in _GUARANTEE if name not in ("guarantee", "writeId"))
TOPIC_SINK_KEYS: Final = (
    "topic",
    *COMMON_KEYS,
    "value",
    *PARTS,
    "properties",
    *SINK_OPTIONS,
    "guarantee",
    *EXACTLY_ONCE_KEYS,
)
LAKE_SINK_KEYS: Final = (*COMMON_KEYS, "key", "partitionBy", "mergeSchema")
CONSOLE_KEYS: Final = ("console", *COMMON_KEYS, "numRows", "truncate")
JDBC_KEYS: Final = ("jdbc", *COMMON_KEYS, "guarantee")
_KINDS: Final = ("topic", "topicColumn", *LAKE_PACKAGES, "jdbc", "console")
_FAIL: Final = "fail"
# Modes that may be requested, in a stream and otherwise.
_STREAM_MODES: Final = {
    "topic": ["append", "update"],
    "console": ["append", "update", "complete"],
    "jdbc": ["append", "update"],
    **{kind: ["append", "update"] for kind in LAKE_PACKAGES},
}
_BATCH_MODES: Final = {
    "topic": ["append"],
    "console": ["append"],
    "jdbc": ["append", "overwrite"],
    **{kind: ["append", "update"] for kind in LAKE_PACKAGES},
}


def check_sink(
    section: Section, number: int, before: list[str], around: Surroundings, *, is_stream: bool
) -> SinkSpec | None:
    """One sink; None if not even its kind is clear. `before` are the names of sources and steps."""
    name = section.text("name")
    section.what = f"sink {name or number}"
    kind = _kind(section)
    if name is None and kind is not None:
        section.what = f"sink {number} ({kind})"
    origin = _origin(section, before)
    if kind is None:
        return None
    rows = _rows(section, kind, origin, is_stream=is_stream)
    if kind == "topic":
        return _topic(section, rows, around, is_stream=is_stream)
    if kind == "jdbc":
        return _jdbc(section, rows)
    if kind == "console":
        return _console(section, rows)
    return _lake(section, rows, kind)


def _kind(section: Section) -> str | None:
    kinds = [key for key in _KINDS if section.has(key)]
    if kinds == ["topicColumn"]:
        return "topic"
    if kinds == ["topic", "topicColumn"]:
        section.mistake("topicColumn", "topic already determines where all rows go")
        return None
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        section.mistake(kinds[1], f"{' and '.join(kinds)} are mutually exclusive: a sink is one of them")
        return None
    near = next(
        (f"; {words}" for name in section.names if "did you" in (words := nearest(name, list(_KINDS)))), ""
    )
    section.mistake("", f"nowhere to write: give one of {', '.join(_KINDS)}{near}")
    return None


def _origin(section: Section, before: list[str]) -> str:
    """The source or step that a sink writes: by default the last one."""
    if not section.has("from"):
        return before[-1] if before else ""
    origin = section.text("from") or ""
    if origin and origin not in before:
        section.mistake("from", f"unknown source or step {origin}; {nearest(origin, before)}")
    return origin


def _rows(section: Section, kind: str, origin: str, *, is_stream: bool) -> Rows:
    modes = (_STREAM_MODES if is_stream else _BATCH_MODES)[kind]
    mode = section.text("mode") or "append"
    if mode not in modes:
        what = "a stream" if is_stream else "a pipeline without a stream"
        section.mistake("mode", f"{mode!r}: for {kind} in {what} it must be {' or '.join(modes)}")
    return Rows(section.text("name") or _name(section, kind), section.begin, origin, mode)


def _name(section: Section, kind: str) -> str:
    """A name that does not depend on other sinks, as checkpoints are found by it."""
    key = {"iceberg": "table", "jdbc": "dbtable"}.get(kind, "topic" if section.has("topic") else kind)
    target = section.peek(key) or section.peek(kind)
    if kind in LAKE_PACKAGES and kind != "iceberg":
        target = target.rstrip("/").rpartition("/")[2]
    bare = kind if kind == "console" else f"{kind}-{target}"
    return re.sub(r"[^\w.-]+", "-", bare).strip("-")


def check_same_names(sinks: list[SinkSpec], mistakes: Mistakes) -> None:
    """Two sinks under one name would share a checkpoint."""
    seen: dict[str, int] = {}
    for sink in sinks:
        rows = sink.rows
        if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", rows.name):
            mistakes.add(rows.line, f"sink {rows.name!r}: a name may only have letters, digits, and . _ -")
        if rows.name in seen:
            other = f"the one on line {seen[rows.name]}"
            mistakes.add(rows.line, f"sink {rows.name}: {other} has the same name; rename one of them")
        seen.setdefault(rows.name, rows.line)


# -- kinds -----------------------------------------------------------------------------------------


def _sink_options(section: Section, around: Surroundings) -> dict[str, str]:
    """The options of a topic sink: unlike for a DataFrame, brokers may create the topic."""
    options = {"createTopic": "true", **section.options(SINK_OPTIONS)}
    if around.namesrv is not None:
        options.setdefault("namesrv", around.namesrv)
    return options


def _topic(section: Section, rows: Rows, around: Surroundings, *, is_stream: bool) -> TopicSink:
    topic = section.text("topic")
    message = _message(section)
    options = _sink_options(section, around)
    if topic is not None:
        options["topic"] = topic
    guarantee = _topic_guarantee(section, is_stream=is_stream)
    exactly_once = section.options(EXACTLY_ONCE_KEYS)
    if exactly_once and guarantee != EXACTLY_ONCE:
        section.mistake(next(iter(exactly_once)), f"only with guarantee: {EXACTLY_ONCE}")
    section.finish(TOPIC_SINK_KEYS)
    checked = dict(options)
    if guarantee == EXACTLY_ONCE:
        # Without an id of its own, the sink gets one when it starts.
        checked |= {"guarantee": EXACTLY_ONCE, "sinkId": "-", **exactly_once}
    try:
        SinkOptions.parse(checked, around.environ)
    except ConfigError as error:
        section.tell(error.problems)
    return TopicSink(rows, {**options, **exactly_once}, message, guarantee)


def _topic_guarantee(section: Section, *, is_stream: bool) -> str | None:
    """None: exactly once if the brokers support it."""
    if not section.has("guarantee"):
        return None if is_stream else AT_LEAST_ONCE
    guarantee = section.choice("guarantee", AT_LEAST_ONCE, [EXACTLY_ONCE, AT_LEAST_ONCE])
    if guarantee == EXACTLY_ONCE and not is_stream:
        section.mistake("guarantee", "without a stream every run writes all its rows: at-least-once")
        return AT_LEAST_ONCE
    return guarantee


def _message(section: Section) -> MessageParts:
    parts = {PARTS[key]: column for key in PARTS if (column := section.text(key))}
    properties = section.words("properties")
    value = section.take("value")
    if value is None:
        return MessageParts(parts=parts, properties=properties)
    if value.text is not None:
        kind = section.choice("value", "json", ["json", "row"])
        if kind == "row":
            for key in [*PARTS, "properties"]:
                if section.has(key):
                    section.mistake(key, "with value: row, the columns already are the parts of the message")
            return MessageParts("row")
        return MessageParts(parts=parts, properties=properties)
    inner = section.section("value")
    assert inner is not None  # it is present
    if inner.has("json") == inner.has("column"):
        inner.take("json"), inner.take("column")
        inner.mistake("column", "use either json (a list of columns) or column (the body)")
    columns = inner.words("json") if inner.has("json") else inner.words("column")
    if inner.has("column") and len(columns) > 1:
        inner.mistake("column", "the body is one column")
    inner.finish(["json", "column"])
    return MessageParts("column" if inner.has("column") else "json", columns, parts, properties)


def _lake(section: Section, rows: Rows, kind: str) -> LakeSink | None:
    table = lake_table(section, kind)
    partition_by = section.words("partitionBy")
    key = section.words("key")
    if rows.mode == "update" and not section.has("key"):
        section.mistake("mode", "update requires key: the columns by which a row replaces an earlier one")
    merge_schema = section.flag("mergeSchema", False)
    section.finish([kind, *LAKE_SINK_KEYS, *(ICEBERG_KEYS if kind == "iceberg" else ())])
    if table is None:
        return None
    return LakeSink(rows, replace(table, partition_by=partition_by, key=key, merge_schema=merge_schema))


def _jdbc(section: Section, rows: Rows) -> JdbcSink:
    guarantee = section.choice("guarantee", EXACTLY_ONCE, [EXACTLY_ONCE, AT_LEAST_ONCE])
    return JdbcSink(rows, jdbc_options(section, is_sink=True), guarantee == EXACTLY_ONCE)


def _console(section: Section, rows: Rows) -> ConsoleSink:
    section.flag("console", True)
    num_rows = section.number("numRows", 20)
    truncate = section.flag("truncate", True)
    section.finish(CONSOLE_KEYS)
    return ConsoleSink(rows, num_rows, truncate)


# -- bad records -----------------------------------------------------------------------------------


def check_bad_records(value: Value, mistakes: Mistakes, section: Section, around: Surroundings) -> BadRecords:
    """`fail`, or a mapping with topic or folder."""
    if value.text is not None:
        if value.text != _FAIL:
            section.mistake(
                "badRecords", f"must be {_FAIL}, {{topic: NAME}} or {{folder: DIR}}, not {value.text!r}"
            )
        return BadRecords(value.line)
    inner = Section(value, "badRecords", mistakes, section.folder)
    if inner.has("folder") == inner.has("topic"):
        inner.take("folder"), inner.take("topic")
        inner.mistake("", "use either topic or folder")
        inner.finish(["topic", "folder", *SINK_OPTIONS])
        return BadRecords(value.line)
    if inner.has("folder"):
        folder = inner.path("folder")
        inner.finish(["folder"])
        return BadRecords(value.line, folder=folder)
    options = {"topic": inner.text("topic") or "", **_sink_options(inner, around)}
    inner.finish(["topic", *SINK_OPTIONS])
    try:
        SinkOptions.parse(options, around.environ)
    except ConfigError as error:
        inner.tell(error.problems)
    return BadRecords(value.line, topic_options=options)
