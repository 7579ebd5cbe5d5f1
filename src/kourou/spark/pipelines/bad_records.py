"""What becomes of values that do not fit: a message in a dead-letter topic, or a line in a folder.

In the topic a bad record is the message as it was, body, keys and tag, with properties that say where it came
from and why. In the folder it is a line of JSON; `value` is the body in Base64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PROPERTIES: Final = {
    "bad_pipeline": "pipeline",
    "bad_source": "source",
    "bad_topic": "topic",
    "bad_broker": "broker",
    "bad_queue_id": "queue_id",
    "bad_queue_offset": "queue_offset",
    "bad_reason": "reason",
}
"""Of a message in the dead-letter topic, by column."""


def named(bad: DataFrame, *, pipeline: str, source: str) -> DataFrame:
    """Bad records that say whose they are."""
    from pyspark.sql import functions as F

    return bad.select(F.lit(pipeline).alias("pipeline"), F.lit(source).alias("source"), *bad.columns)


def as_messages(bad: DataFrame) -> DataFrame:
    """Rows for the sink `rocketmq`."""
    from pyspark.sql import functions as F

    pairs = [part for name, column in PROPERTIES.items() for part in (F.lit(name), _text(column))]
    # No broker takes an empty body: a blank stands for it.
    body = F.when(F.length("value") == 0, F.lit(b" ")).otherwise(F.col("value"))
    return bad.select(body.alias("value"), "key", "tags", F.create_map(*pairs).alias("properties"))


def as_lines(bad: DataFrame) -> DataFrame:
    """Rows for files of JSON."""
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    return bad.withColumn("text", F.when(F.is_valid_utf8(text), text))


def _text(name: str) -> Column:
    from pyspark.sql import functions as F

    # A property has a value: a store without a broker's name has none for that.
    return F.coalesce(F.col(name).cast("string"), F.lit("?"))
