"""SinkColumns: which column of a DataFrame is what of a message, and the columns of an Arrow batch as such.

`value` or `body` is the message's body; `topic`, `key` or `keys`, `tags`, `properties`, `sharding_key` or
`queue_id` (with `broker` where several have that queue) and `delay_ms` may be left out.
Not here: what is sent (batch_entries.py), single rows that are odd (invalid_rows.py).
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
# What each column may be, and the words for it.
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
    """The columns of one Arrow batch, under the names of a message's parts; None for those left out.

    Bodies and texts are `large_binary`, whatever Spark's settings make of them, `keys` lists aside.
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
    """Positions of the columns, by the part of a message that they are."""

    positions: dict[str, int]

    @classmethod
    def of(cls, schema: Any, topic: str | None) -> SinkColumns:
        """The columns of a StructType; `topic` is the option. ConfigError names all that is wrong."""
        problems: list[str] = []
        positions: dict[str, int] = {}
        given: set[str] = set()
        for position, field in enumerate(schema.fields):
            part = _ALIASES.get(field.name.lower(), field.name.lower())
            given.add(part)
            problem = _problem(field.name, part, field.dataType.simpleString())
            if problem is None and part in positions:
                problem = f"column {field.name}: there is another column for {part}"
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
        hint = f"did you mean {near[0]}?" if near else f"those are {', '.join(known)}."
        return f"column {name}: no part of a message; {hint} Else leave it out with drop({name!r})"
    kinds, words = _KINDS[part]
    if kind in kinds or (kind.startswith("string") and "string" in kinds):
        return None
    advice = "; use to_json(struct(…)) or cast it" if part == "value" else ""
    return f"column {name}: it is {kind}, and has to be {words}{advice}"


def _missing(positions: dict[str, int], given: set[str], topic: str | None) -> list[str]:
    problems = []
    if "value" not in given:
        problems.append("column value (or body): missing; it is what is sent")
    if "topic" not in given and topic is None:
        problems.append('topic: say where to write: option("topic", …), or a column topic')
    if "queue_id" in positions and "sharding_key" in positions:
        problems.append("columns queue_id and sharding_key: give one of them, each says which queue it is")
    if "broker" in positions and "queue_id" not in positions:
        problems.append("column broker: it needs the column queue_id beside it")
    return problems


def _bytes(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary())


def _keys(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column.cast(pa.large_list(pa.large_string()))
    return _bytes(column)


def _map(column: pa.Array) -> pa.Array:
    return column.cast(pa.map_(pa.large_string(), pa.large_string()))


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
    """One text of a column, as a message of an error shows it."""
    value = None if column is None else column[row].as_py()
    if isinstance(value, list):
        return " ".join(str(word) for word in value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def is_set(column: pa.Array) -> pa.Array:
    """Where a column is neither null nor empty."""
    return pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
