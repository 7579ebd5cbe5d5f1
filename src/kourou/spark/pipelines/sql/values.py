"""Messages of a topic as rows of their parsed values; values that cannot be parsed are bad records.

The columns of a value come first, then those of the message; one with the name of a field of the value gets
the prefix `message_`. Each value is parsed once, in a projection, and checked by a generator above it: Spark
moves neither conditions nor projections across that, so that no value escapes the check because a query does
not use it, and none is parsed again. Not here: what happens to bad records (run.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kourou.errors import ConfigError
from kourou.spark.pipelines.check.spec import MessageColumn, TopicSource, ValueSpec
from kourou.spark.pipelines.sql.sql_names import quoted
from kourou.spark.pipelines.sql.value_forms import sampled_schema
from kourou.spark.source.offset_spec import EARLIEST_SPEC, LATEST_SPEC
from kourou.spark.source.offsets import nested
from kourou.spark.source.options import SourceOptions
from kourou.spark.source.queue_lookup import QueueLookup
from kourou.spark.source.source_client import shared_client

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

USUAL_COLUMNS: Final = tuple(
    MessageColumn(name, kind, name)
    for name, kind in (
        ("key", "string"),
        ("tags", "string"),
        ("topic", "string"),
        ("broker", "string"),
        ("queue_id", "int"),
        ("queue_offset", "bigint"),
        ("born_timestamp", "timestamp"),
        ("store_timestamp", "timestamp"),
    )
)
"""In addition to the value's; `properties` is the most expensive and must be requested."""
_PLACE: Final = {
    "topic": "string",
    "broker": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "key": "string",
    "tags": "string",
    "store_timestamp": "timestamp",
}
"""The columns of a bad record, in addition to its value."""
_M: Final = "__message_"
_VALUE: Final = "__value"
_CORRUPT: Final = "__corrupt"
_FITS: Final = "__fits"
_SHOWN_BYTES: Final = 80
BAD_RECORD: Final = "kourou bad record: "
"""The prefix of its description in Spark's exception."""


class ValueReader:
    """Reads one topic source. `schema_folder` keeps an inferred schema, so that a restarted stream has the
    same columns."""

    def __init__(self, spark: SparkSession, source: TopicSource, schema_folder: Path | None) -> None:
        self._spark = spark
        self._source = source
        self._schema_folder = schema_folder

    def rows(self) -> DataFrame:
        """The messages unparsed, for a source that does not declare its value."""
        columns = self._source.columns
        frame = self._load(", ".join(column.ddl for column in columns) or None)
        return (
            frame.selectExpr(*(f"`{each.name}` AS `{each.alias}`" for each in columns)) if columns else frame
        )

    def parsed(self) -> ParsedTopic:
        """The messages with their values parsed."""
        value = self._source.value
        assert value is not None  # otherwise there is nothing to parse
        types = {**_PLACE, **{each.name: each.type for each in self._columns}, "value": "binary"}
        frame = self._load(", ".join(f"`{name}` {kind}" for name, kind in types.items()))
        schema = value.schema
        if value.format == "json" and schema is None:
            schema = self._found_schema(value)
        parsed = _FORMATS[value.format](frame, value, schema)
        return ParsedTopic(parsed, self._source, self._columns)

    @property
    def _columns(self) -> tuple[MessageColumn, ...]:
        return self._source.columns or USUAL_COLUMNS

    def _load(self, schema: str | None) -> DataFrame:
        reader = self._spark.readStream if self._source.is_stream else self._spark.read
        reader = reader.format("rocketmq").options(**self._source.options)
        return (reader if schema is None else reader.schema(schema)).load()

    # -- a schema from a sample ------------------------------------------------------------------

    def _found_schema(self, value: ValueSpec) -> str:
        kept = self._schema_folder / f"{self._source.name}.ddl" if self._schema_folder is not None else None
        if kept is not None and kept.exists():
            return kept.read_text(encoding="utf-8")
        schema = self._sampled(value.sample_rows)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_suffix(".partial")
            partial.write_text(schema, encoding="utf-8")
            partial.rename(kept)
        return schema

    def _sampled(self, sample_rows: int) -> str:
        given = dict(self._source.options)
        if "store" not in given:
            given = {**_without_points(given), "startingOffsets": newest(given, sample_rows)}
        reader = self._spark.read.format("rocketmq").schema("value binary").options(**given)
        try:
            texts = reader.load().limit(sample_rows).selectExpr("cast(value as string)")
            return sampled_schema(self._source.name, texts)
        except ConfigError as error:
            raise ConfigError(
                "cannot infer the schema, as none of the newest messages is a JSON object; declare it"
            ) from error


def newest(options: Mapping[str, str], rows: int) -> str:
    """The offsets of the last messages of topics, as startingOffsets."""
    parsed = SourceOptions.parse(options)
    lookup = QueueLookup(shared_client(parsed.connection), parsed)
    queues = lookup.queues()
    low, high = lookup.resolve(queues, EARLIEST_SPEC), lookup.resolve(queues, LATEST_SPEC)
    share = max(1, rows // max(1, len(queues)))
    return json.dumps(nested({queue: max(low[queue], high[queue] - share) for queue in queues}))


def _without_points(options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if not name.startswith(("starting", "ending"))}


class ParsedTopic:
    """A topic with parsed values: good rows and bad records."""

    def __init__(self, parsed: Parsed, source: TopicSource, columns: tuple[MessageColumn, ...]) -> None:
        self._parsed = parsed
        self._source = source
        self._columns = columns

    def good(self, *, fail: bool) -> DataFrame:
        """The good rows. With `fail` a bad record fails the query with a description; otherwise it is left
        out."""
        from pyspark.sql import functions as F

        value = F.col(_VALUE)
        fields = [name for name in self._parsed.names if name not in (_CORRUPT, _FITS)]
        row = F.array(F.struct(*(value.getField(name).alias(name) for name in fields)))
        otherwise = F.raise_error(self._words()) if fail else F.array()
        frame = self._parsed.frame.select(
            *(F.col(f"`{_M}{column.name}`") for column in self._messages),
            F.inline(F.when(self._parsed.reason.isNull(), row).otherwise(otherwise)),
        )
        taken = {name.lower() for name in fields}
        beside = [F.col(f"`{_M}{each.name}`").alias(_free(each.alias, taken)) for each in self._columns]
        return frame.select(*(F.col(quoted(name)) for name in fields), *beside)

    @property
    def _messages(self) -> list[MessageColumn]:
        return list({column.name: column for column in self._columns}.values())

    def bad(self) -> DataFrame:
        """The bad records: their position, `key`, `tags`, `store_timestamp`, `value` and `reason`."""
        from pyspark.sql import functions as F

        reason = F.array(F.struct(self._parsed.reason.alias("reason")))
        names = [*_PLACE, "value"]
        return self._parsed.frame.select(
            *(F.col(f"`{_M}{name}`").alias(name) for name in names),
            F.inline(F.when(self._parsed.reason.isNotNull(), reason).otherwise(F.array())),
        )

    def _words(self) -> Column:
        """The description of a bad record: its position, the reason, and its first bytes."""
        from pyspark.sql import functions as F

        value = F.col(f"{_M}value")
        text = value.cast("string")
        begin = F.when(
            F.is_valid_utf8(text), F.regexp_replace(F.substring(text, 1, _SHOWN_BYTES), r"\s+", " ")
        )
        shown = begin.otherwise(F.concat(F.lit("0x"), F.hex(F.substring(value, 1, _SHOWN_BYTES // 2))))
        place = [F.coalesce(F.col(f"{_M}{name}").cast("string"), F.lit("?")) for name in list(_PLACE)[:4]]
        return F.format_string(
            f"{BAD_RECORD}source {self._source.name}: topic '%s', broker '%s', queue %s, offset %s: "
            "%s; it has %d bytes and begins with %s",
            *place,
            self._parsed.reason,
            F.length(value),
            shown,
        )


class Parsed:
    """Messages with `__value`, a struct; `reason` says why a value is bad, or is null."""

    def __init__(self, frame: DataFrame, value: Column, reason: Column) -> None:
        columns = [frame[name].alias(f"{_M}{name}") for name in frame.columns]
        self.frame = frame.select(*columns, value.alias(_VALUE))
        self.reason = reason
        self.names: list[str] = self.frame.schema[_VALUE].dataType.names


def _json(frame: DataFrame, value: ValueSpec, schema: str | None) -> Parsed:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    assert schema is not None  # given or inferred
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(frame["value"].cast("string"), f"{schema}, `{_CORRUPT}` string", options)
    found, text = F.col(_VALUE), F.col(f"{_M}value").cast("string")
    bare = F.btrim(text, F.lit(" \t\r\n"))
    is_object = bare.startswith("{") & bare.endswith("}") & found.isNotNull()
    reason = F.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
    reason = reason.when(~is_object, F.lit("the value is not a JSON object"))
    fields = StructType.fromDDL(schema).fields
    reason = reason.when(found.getField(_CORRUPT).isNotNull(), _misfit(fields, text))
    for name in value.required:
        missing = F.lit(f"the value has no {name}, which is NOT NULL")
        reason = reason.when(found.getField(name).isNull(), missing)
    return Parsed(frame, parsed, reason)


def _misfit(fields: list[Any], text: Column) -> Column:
    """The fields that do not have their declared type; evaluated for bad records only."""
    from pyspark.sql import functions as F

    found = F.col(_VALUE)
    wrong = [
        F.when(
            found.getField(field.name).isNull() & F.get_json_object(text, f"$['{field.name}']").isNotNull(),
            F.lit(f"{field.name} {field.dataType.simpleString()}"),
        )
        for field in fields
        if "'" not in field.name and "]" not in field.name
    ]
    names = F.concat_ws(", ", *wrong)
    return F.when(names == "", F.lit("the value is not JSON, or does not match the schema")).otherwise(
        F.concat(F.lit("the value does not match the schema in "), names)
    )


def _string(frame: DataFrame, value: ValueSpec, schema: str | None) -> Parsed:
    from pyspark.sql import functions as F

    text = F.col(f"{_M}value").cast("string")
    reason = F.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
    return Parsed(frame, F.struct(frame["value"].cast("string").alias("value")), reason)


def _avro(frame: DataFrame, value: ValueSpec, schema: str | None) -> Parsed:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    assert schema is not None  # checked with the file
    # Spark decodes invalid bytes as a record of nulls, which might be valid. So an extra field is added,
    # which every record has by its default.
    record = json.loads(schema)
    more = {"name": _FITS, "type": "int", "default": 1}
    wanted = json.dumps({**record, "fields": [*record["fields"], more]})
    parsed = from_avro(frame["value"], schema, {"mode": "PERMISSIVE", "avroSchema": wanted})
    fits = F.col(_VALUE).getField(_FITS)
    return Parsed(frame, parsed, F.when(fits.isNull(), F.lit("the value does not match the Avro schema")))


_FORMATS: Final = {"json": _json, "string": _string, "avro": _avro}


def _free(alias: str, taken: set[str]) -> str:
    return f"message_{alias}" if alias.lower() in taken else alias
