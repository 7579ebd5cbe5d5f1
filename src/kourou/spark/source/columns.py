"""Columns: the rows of a source, and how each column is built from stored records.

Only columns in the schema are built. Besides those of the two row formats there are some that must be
requested with `.schema(…)`, and `property_NAME` for any single property, in the requested type. Not here:
where records come from, batches (arrow_batches.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kourou.errors import ConfigError, ProtocolError
from kourou.protocol.compression import inflate_body
from kourou.protocol.layout import BORN_V6, STORE_V6
from kourou.protocol.message_id import host_text, offset_msg_id
from kourou.protocol.properties import MessageConst
from kourou.protocol.record_spans import RecordSpans
from kourou.spark.source.arrow_pieces import pieces
from kourou.spark.source.property_table import PropertyTable
from kourou.spark.source.uniform_properties import UniformProperties

PROPERTY_PREFIX: Final = "property_"
_COMPRESSED: Final = 1
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_MAX_MS: Final = ((1 << 63) - 1) // 1000
_LOG_APPEND_TIME: Final = 1
"""Kafka's code for timestamps set by the broker."""


class Rows:
    """Records to build columns from. `topic` is None where each record's own topic applies."""

    def __init__(self, records: RecordSpans, *, topic: str | None, broker: str | None) -> None:
        self.records = records
        self.topic = topic
        self.broker = broker

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def properties(self) -> UniformProperties | PropertyTable:
        """The properties, parsed when a column needs them."""
        return UniformProperties.of(self.records) or PropertyTable(self.records)

    @cached_property
    def bodies(self) -> Any:
        """Bodies as they were sent: compressed ones are inflated, one by one."""
        records = self.records
        stored = pieces(records.raw, records.body_begins, records.body_ends, pa.binary())
        is_compressed = (records.sys_flags & _COMPRESSED).astype(np.bool_)
        if not is_compressed.any():
            return stored
        inflated = [self._inflated(row) for row in np.flatnonzero(is_compressed).tolist()]
        return pc.replace_with_mask(stored, pa.array(is_compressed), pa.array(inflated, pa.binary()))

    def _inflated(self, row: int) -> bytes:
        records = self.records
        body = records.raw[int(records.body_begins[row]) : int(records.body_ends[row])]
        try:
            return inflate_body(bytes(body), int(records.sys_flags[row]))
        except ProtocolError as error:
            raise ProtocolError(f"{self.place(row)}: {error}") from error

    def place(self, row: int) -> str:
        """The position of a row, for error messages."""
        records = self.records
        raw_topic = records.raw[records.topic_begins[row] : records.topic_ends[row]]
        topic = self.topic or str(raw_topic, "utf-8", "replace")
        return (
            f"topic {topic!r}, broker {self.broker!r}, queue {int(records.field('queue_id')[row])}, "
            f"offset {int(records.field('queue_offset')[row])}"
        )


@dataclass(frozen=True, slots=True)
class Column:
    """One column: how it is built, and the types it may have, the default first."""

    build: Callable[[Rows], Any]
    types: tuple[str, ...]


# -- builders --------------------------------------------------------------------------------------


def _number(name: str) -> Callable[[Rows], Any]:
    return lambda rows: pa.array(rows.records.field(name))


def _milliseconds(times: NDArray[np.int64]) -> Any:
    """Times in Spark's unit; null for those beyond its range, as a producer may send any value."""
    is_beyond = (times > _MAX_MS) | (times < -_MAX_MS)
    if is_beyond.any():
        return pa.array(np.where(is_beyond, 0, times) * 1000, pa.int64(), mask=is_beyond).cast(_MICROSECONDS)
    return pa.array(times * 1000).view(_MICROSECONDS)


def _property(name: str) -> Callable[[Rows], Any]:
    return lambda rows: rows.properties.column(name)


def _topics(rows: Rows) -> Any:
    if rows.topic is not None:
        return _same(rows.topic, len(rows))
    records = rows.records
    found = pieces(records.raw, records.topic_begins, records.topic_ends, pa.binary())
    return as_text(found)


def _same(value: str | None, count: int) -> Any:
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(value, count)


def _born_hosts(rows: Rows) -> Any:
    return _hosts(rows, "born_host", BORN_V6)


def _store_hosts(rows: Rows) -> Any:
    return _hosts(rows, "store_host", STORE_V6)


def _hosts(rows: Rows, name: str, v6_flag: int) -> Any:
    """`host:port`, formatted once per host: there are few."""
    is_v6 = (rows.records.sys_flags & v6_flag) != 0
    if is_v6.any():
        texts = [host_text(rows.records.host_bytes(row, name)) for row in range(len(rows))]
        return pa.array(texts, pa.string())
    found, index = np.unique(rows.records.hosts(name), return_inverse=True)
    texts = [host_text(int(number).to_bytes(8, "big")) for number in found]
    return pa.array(texts, pa.string()).take(pa.array(index.reshape(-1)))


def _offset_msg_ids(rows: Rows) -> Any:
    records = rows.records
    phy_offsets = records.field("phy_offset")
    if (records.sys_flags & STORE_V6).any():
        hosts = (records.host_bytes(row, "store_host") for row in range(len(rows)))
        ids = [offset_msg_id(host, int(at)) for host, at in zip(hosts, phy_offsets, strict=True)]
        return pa.array(ids, pa.string())
    parts = np.empty((len(rows), 2), ">u8")
    parts[:, 0], parts[:, 1] = records.hosts("store_host"), phy_offsets.astype(np.uint64)
    raw = parts.view(np.uint8)
    digits = np.empty((len(rows), 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    bounds = np.arange(0, 32 * len(rows) + 1, 32, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(rows), [None, pa.py_buffer(bounds), pa.py_buffer(digits.reshape(-1))]
    )


def _msg_ids(rows: Rows) -> Any:
    """The producer's id; the offset id if there is none."""
    given = rows.properties.column(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    return pc.coalesce(given, _offset_msg_ids(rows)) if given.null_count else given


def _headers(rows: Rows) -> Any:
    bounds, names, values = rows.properties.pairs()
    entries = pa.StructArray.from_arrays([names, values.cast(pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(bounds, entries)


def as_text(array: Any) -> Any:
    """Bytes as strings; invalid UTF-8 becomes U+FFFD."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if each is None else each.decode("utf-8", "replace") for each in array.to_pylist()]
        return pa.array(texts, pa.string())


_TEXT: Final = ("string", "binary")
_BYTES: Final = ("binary", "string")
_INT: Final = ("int", "bigint")
_LONG: Final = ("bigint",)
_TIME: Final = ("timestamp", "bigint")
_MAP: Final = ("map<string,string>",)
_HEADERS: Final = ("array<struct<key:string,value:binary>>",)

ROCKETMQ_COLUMNS: Final = {
    "key": Column(_property(MessageConst.PROPERTY_KEYS), _TEXT),
    "value": Column(lambda rows: rows.bodies, _BYTES),
    "topic": Column(_topics, _TEXT),
    "broker": Column(lambda rows: _same(rows.broker, len(rows)), _TEXT),
    "queue_id": Column(_number("queue_id"), _INT),
    "queue_offset": Column(_number("queue_offset"), _LONG),
    "msg_id": Column(_msg_ids, _TEXT),
    "tags": Column(_property(MessageConst.PROPERTY_TAGS), _TEXT),
    "keys": Column(lambda rows: rows.properties.words(MessageConst.PROPERTY_KEYS), ("array<string>",)),
    "born_timestamp": Column(lambda rows: _milliseconds(rows.records.field("born_timestamp")), _TIME),
    "store_timestamp": Column(lambda rows: _milliseconds(rows.records.store_timestamps), _TIME),
    "born_host": Column(_born_hosts, _TEXT),
    "reconsume_times": Column(lambda rows: pa.array(rows.records.field("reconsume_times")), _INT),
    "properties": Column(lambda rows: rows.properties.maps(), _MAP),
}
"""The columns of the default row format."""

KAFKA_COLUMNS: Final = {
    "key": Column(_property(MessageConst.PROPERTY_KEYS), _BYTES),
    "value": ROCKETMQ_COLUMNS["value"],
    "topic": ROCKETMQ_COLUMNS["topic"],
    "partition": Column(_number("queue_id"), _INT),
    "offset": Column(_number("queue_offset"), _LONG),
    "timestamp": ROCKETMQ_COLUMNS["store_timestamp"],
    "timestampType": Column(lambda rows: pa.array(np.full(len(rows), _LOG_APPEND_TIME, np.int32)), _INT),
    "headers": Column(_headers, _HEADERS),
}
"""The columns of Spark's Kafka source; `headers` with the option includeHeaders."""

OTHER_COLUMNS: Final = {
    "offset_msg_id": Column(_offset_msg_ids, _TEXT),
    "store_host": Column(_store_hosts, _TEXT),
    "phy_offset": Column(_number("phy_offset"), _LONG),
    "flag": Column(_number("flag"), _INT),
    "sys_flag": Column(_number("sys_flag"), _INT),
}
"""Columns that must be requested by a schema."""

_PROPERTY_TYPES: Final = (
    "string",
    "binary",
    "boolean",
    "int",
    "bigint",
    "double",
    "float",
    "timestamp",
    "date",
)


_TYPE_ALIASES: Final = {"integer": "int", "long": "bigint"}


def known_columns(row_format: str) -> dict[str, Column]:
    """All columns that a schema may name, except for properties."""
    return {**(KAFKA_COLUMNS if row_format == "kafka" else ROCKETMQ_COLUMNS), **OTHER_COLUMNS}


def default_schema(row_format: str, *, include_headers: bool = False) -> str:
    """The default schema, as Spark's DDL."""
    columns = KAFKA_COLUMNS if row_format == "kafka" else ROCKETMQ_COLUMNS
    return ", ".join(
        f"{name} {column.types[0]}"
        for name, column in columns.items()
        if name != "headers" or include_headers
    )


def chosen_columns(text: str, row_format: str) -> dict[str, str]:
    """The columns of the option `columns`, `NAME` or `NAME TYPE` separated by commas, with their types.
    ConfigError for anything that is not a column."""
    known = known_columns(row_format)
    fields: dict[str, str] = {}
    for item in re.split(r",(?![^<]*>)", text):
        found = re.fullmatch(r"\s*`?([\w.-]+)`?(?:\s+([\w<>,: ]+?))?\s*", item)
        if found is None:
            raise ConfigError(
                f"option columns: {item.strip()!r:.80} is not a column; write NAME or NAME TYPE"
            )
        name, kind = found[1], (found[2] or "").lower().replace(" ", "")
        usual = known[name].types[0] if name in known else "string"
        fields[name] = _TYPE_ALIASES.get(kind, kind) or usual
    check_schema(fields, row_format)
    return fields


def check_schema(fields: dict[str, str], row_format: str) -> None:
    """ConfigError for unknown columns or unsupported types; types are Spark's simple strings."""
    columns = known_columns(row_format)
    problems = []
    for name, kind in fields.items():
        is_property = name.startswith(PROPERTY_PREFIX) and name not in columns
        types = _PROPERTY_TYPES if is_property else columns[name].types if name in columns else ()
        if not types:
            problems.append(_unknown_column(name, list(columns)))
        elif kind not in types:
            problems.append(f"column {name!r} cannot be {kind}: use {' or '.join(types)}")
    if problems:
        raise ConfigError(f"invalid schema: {problems[0]}", *problems[1:])


def _unknown_column(name: str, names: list[str]) -> str:
    nearest = get_close_matches(name, names, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"use one of {', '.join(names)}"
    return f"unknown column {name!r}; {hint} (a property is a column {PROPERTY_PREFIX}NAME)"
