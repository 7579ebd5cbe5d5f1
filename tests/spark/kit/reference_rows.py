"""Rows made the slow and simple way: each record decoded into a message, each column read from that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kourou.protocol.message import MessageExt

MAX_MS = ((1 << 63) - 1) // 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TYPES = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "broker": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "msg_id": pa.string(),
    "tags": pa.string(),
    "keys": pa.list_(pa.field("element", pa.string())),
    "born_timestamp": pa.timestamp("us", "UTC"),
    "store_timestamp": pa.timestamp("us", "UTC"),
    "born_host": pa.string(),
    "reconsume_times": pa.int32(),
    "properties": pa.map_(pa.string(), pa.string()),
    "offset_msg_id": pa.string(),
    "store_host": pa.string(),
    "phy_offset": pa.int64(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
}
SCHEMA = pa.schema(list(TYPES.items()))


def _microseconds(milliseconds: int) -> int | None:
    return milliseconds * 1000 if -MAX_MS <= milliseconds <= MAX_MS else None


def reference_row(message: MessageExt, topic: str | None, broker: str | None) -> dict[str, Any]:
    """The row of one message; times are microseconds."""
    return {
        "key": message.properties.get("KEYS"),
        "value": message.body,
        "topic": message.topic if topic is None else topic,
        "broker": broker,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "born_timestamp": _microseconds(message.born_timestamp),
        "store_timestamp": _microseconds(message.store_timestamp),
        "born_host": message.born_host,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        "offset_msg_id": message.offset_msg_id,
        "store_host": message.store_host,
        "phy_offset": message.phy_offset,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
    }


def rows_of(batches: list[Any]) -> list[dict[str, Any]]:
    """The rows of Arrow batches, in the same form."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        columns = {name: _values(batch.column(name)) for name in batch.schema.names}
        rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows


def _values(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    values = column.to_pylist()
    if not pa.types.is_map(column.type):
        return list(values)
    for pairs in values:
        assert len({name for name, _ in pairs}) == len(pairs), "a name is twice in one map"
    return [dict(pairs) for pairs in values]


def milliseconds(row_time: datetime) -> int:
    """A time that Spark gave, as RocketMQ keeps it."""
    when = row_time if row_time.tzinfo else row_time.astimezone()
    return (when - EPOCH) // timedelta(milliseconds=1)
