"""ValueForm: the format of message bodies by `--value`: JSON with columns, text, or bytes.

json:id string, amount double     columns of this schema
json                              columns inferred from a sample of the topic
string                            text
binary                            bytes
orders=json:id string             the same for one topic
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kourou.errors import ConfigError
from kourou.spark.pipelines.check.ddl import parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORM: Final = re.compile(
    r"^(?:(?P<topic>[%|\w-]+)=)?(?P<kind>json|string|binary)(?::(?P<schema>.*))?$", re.S
)
_HINT: Final = (
    "must be json, json:SCHEMA (json:id string, amount double), string or binary, or TOPIC=one of them"
)


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The format of bodies. JSON without a schema uses that of a sample."""

    kind: Literal["json", "string", "binary"] = "string"
    schema: str | None = None


def parse_value_forms(texts: Iterable[str]) -> dict[str, ValueForm]:
    """The forms by topic; the one for all topics has the name "". ConfigError lists all mistakes."""
    forms: dict[str, ValueForm] = {}
    problems = []
    for text in texts:
        match = _FORM.match(text.strip())
        if match is None or (match["schema"] is not None and match["kind"] != "json"):
            problems.append(f"--value {text!r}: {_HINT}")
            continue
        try:
            schema = match["schema"]
            if schema is not None:
                parse_ddl(schema)
        except ValueError as error:
            problems.append(f"--value {text!r}: {error}")
            continue
        forms[match["topic"] or ""] = ValueForm(match["kind"], schema)  # type: ignore[arg-type]
    if problems:
        raise ConfigError(*problems)
    return forms


def form_of(topic: str, forms: Mapping[str, ValueForm]) -> ValueForm:
    """The form of a topic's bodies."""
    return forms.get(topic) or forms.get("") or ValueForm()


def with_value_columns(frame: DataFrame, schema: str) -> DataFrame:
    """The fields of the JSON in `value`, then the columns of the message; null where a value does not match.

    A column of the message with the name of a field gets the prefix `message_`."""
    from pyspark.sql.functions import col, from_json

    parsed = frame.withColumn("__value", from_json(col("value").cast("string"), schema))
    fields = parsed.schema["__value"].dataType.names
    taken = {name.lower() for name in fields}
    columns = [col("__value").getField(name).alias(name) for name in fields]
    for name in frame.columns:
        columns.append(col(f"`{name}`").alias(f"message_{name}" if name.lower() in taken else name))
    return parsed.select(*columns)


def sampled_schema(topic: str, texts: DataFrame) -> str:
    """The schema of a topic's JSON texts, as DDL. ConfigError if they are not JSON."""
    spark = texts.sparkSession
    rows = [row[0] for row in texts.collect() if row[0] is not None]
    found = spark.read.json(spark.sparkContext.parallelize(rows, 1)).schema if rows else None
    names = [] if found is None else [name for name in found.names if name != "_corrupt_record"]
    if found is None or not names:
        what = "has no messages that are JSON objects" if rows else "has no messages yet"
        raise ConfigError(
            f"topic {topic!r} {what}: cannot infer its columns; give them with --value json:SCHEMA"
        )
    return ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" for field in found if field.name in names
    )
