"""SinkColumns: maps the columns of a DataFrame, and of its Arrow batches, to the parts of a message.

`value` or `body` is the message's body; `topic`, `key` or `keys`, `tags`, `properties`, `sharding_key` or
`queue_id` (with `broker` where several have that queue) and `delay_ms` are optional.
Not here: what is sent (batch_entries.py), rows sent one by one (invalid_rows.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kourou.errors import ConfigError

_TEXT: Final = ("string", "char", "varchar")
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint")
# The types that each column may have, and their description.
_KINDS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "topic": (_TEXT, "string"),
    "value": ((*_TEXT, "binary"), "string or binary"),
    "keys": ((*_TEXT, "binary", "array<string>"), "string, binary or array<string>"),
    "tags": (_TEXT, "string"),
    "properties": (("map<string,string>",), "map<string,string>"),
    "sharding_key": (_TEXT, "string"),
    "queue_id": (_NUMBERS, "a whole number"),
    "broker": (_TEXT, "string"),
    "delay_ms": (_NUMBERS, "a whole number"),
}
_ALIASES: Final = {"body": "value", "key": "keys", "partition": "queue_id"}


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns of one Arrow batch, by the part of a message; None for absent ones.

    Bodies and texts are `large_binary`, whatever Spark's settings produce, except for `keys` lists.
    """

    count: int
    value: pa.Array
    topic: pa.Array | None = None
    keys: pa.Array | None = None
    tags: pa.Array | None = None
    properties: pa.Array | None = None
    sharding_key: pa.Array | None = None
    queue_id: pa.Array | None = None
    broker: pa.Array | None = None
    delay_ms: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Positions of the columns, by the part of a message."""

    positions: dict[str, int]

    @classmethod
    def of(cls, schema: Any, topic: str | None) -> SinkColumns:
        """The columns of a StructType; `topic` is the option. ConfigError lists every problem."""
        problems: list[str] = []
        positions: dict[str, int] = {}
        given: set[str] = set()
        for position, field in enumerate(schema.fields):
            part = _ALIASES.get(field.name.lower(), field.name.lower())
            given.add(part)
            problem = _problem(field.name, part, field.dataType.simpleString())
            if problem is None and part in positions:
                problem = f"column {field.name}: another column is already used for {part}"
            if problem is None:
                positions[part] = position
            else:
                problems.append(problem)
        problems += _missing(positions, given, topic)
        if problems:
            raise ConfigError(*problems)
        if topic is not None:
            positions.pop("topic", None)
        return cls(positions)

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """The parts of the messages in an Arrow batch."""
        parts = {part: _AS[part](batch.column(position)) for part, position in self.positions.items()}
        return Rows(count=batch.num_rows, **parts)


def _problem(name: str, part: str, kind: str) -> str | None:
    if part not in _KINDS:
        known = [*_KINDS, *_ALIASES]
        near = difflib.get_close_matches(part, known, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}."
        return f"column {name}: not part of a message; {hint} Otherwise drop it with drop({name!r})"
    kinds, words = _KINDS[part]
    if kind in kinds or (kind.startswith("string") and "string" in kinds):
        return None
    advice = "; use to_json(struct(…)) or cast it" if part == "value" else ""
    return f"column {name}: its type is {kind}, but must be {words}{advice}"


def _missing(positions: dict[str, int], given: set[str], topic: str | None) -> list[str]:
    problems = []
    if "value" not in given:
        problems.append("column value (or body): missing; it holds the message body")
    if "topic" not in given and topic is None:
        problems.append('topic: set option("topic", …) or add a column topic')
    if "queue_id" in positions and "sharding_key" in positions:
        problems.append("columns queue_id and sharding_key: use only one of them, as each selects the queue")
    if "broker" in positions and "queue_id" not in positions:
        problems.append("column broker: requires the column queue_id")
    return problems


def _bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())


def _keys(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _empty_nulls(column.cast(pa.large_list(pa.large_string())))
    return _bytes(column)


def _map(column: pa.Array) -> pa.Array:
    return _empty_nulls(column.cast(pa.map_(pa.large_string(), pa.large_string())))


def _empty_nulls(column: pa.Array) -> pa.Array:
    """Lists or maps of which a null has no items: in Arrow it may have some, which do not count."""
    if not column.null_count:
        return column
    offsets = column.offsets.to_numpy()
    if not (offsets[1:] > offsets[:-1])[column.is_null().to_numpy(zero_copy_only=False)].any():
        return column
    return column.take(pa.array(range(len(column)), pa.int64()))


def _int64(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64())


_AS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    **dict.fromkeys(("topic", "value", "tags", "sharding_key", "broker"), _bytes),
    "keys": _keys,
    "properties": _map,
    "queue_id": _int64,
    "delay_ms": _int64,
}


def text_at(column: pa.Array | None, row: int) -> str | None:
    """One value of a column as text, for error messages."""
    value = None if column is None else column[row].as_py()
    if isinstance(value, list):
        return " ".join(str(word) for word in value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def is_set(column: pa.Array) -> pa.Array:
    """Where a column is neither null nor empty."""
    return pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
