"""The sources of a pipeline as DataFrames, and their bad records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.spark.pipelines.check.spec import (
    JdbcSource,
    LakeSource,
    PipelineSpec,
    SourceSpec,
    TopicSource,
    Watermark,
)
from kourou.spark.pipelines.jdbc import with_driver
from kourou.spark.pipelines.lake.lake import read_lake
from kourou.spark.pipelines.lake.lake_files import HIDDEN
from kourou.spark.pipelines.sql.values import ValueReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMAS: str = "schemas"
"""The folder for inferred schemas, below the checkpoint."""


@dataclass(frozen=True, slots=True)
class SourceFrames:
    """The rows of a source, and its bad records, unless they fail the pipeline."""

    rows: DataFrame
    bad: DataFrame | None = None


def read_source(spark: SparkSession, source: SourceSpec, spec: PipelineSpec) -> SourceFrames:
    """The DataFrames of a source. Raises KourouError, or Spark's exceptions."""
    if isinstance(source, JdbcSource):
        options = with_driver(source.options, spec.jars)
        return SourceFrames(spark.read.format("jdbc").options(**options).load())
    if isinstance(source, LakeSource):
        return SourceFrames(_lake(spark, source))
    return _topic(spark, source, spec)


def _lake(spark: SparkSession, source: LakeSource) -> DataFrame:
    table = source.table
    # A Parquet folder may have been written by others.
    if table.format == "parquet" and not (table.folder / HIDDEN).exists():
        return spark.read.parquet(str(table.folder))
    return read_lake(spark, table)


def _topic(spark: SparkSession, source: TopicSource, spec: PipelineSpec) -> SourceFrames:
    folder = None if spec.checkpoint is None else spec.checkpoint / SCHEMAS
    reader = ValueReader(spark, source, folder)
    if source.value is None:
        return SourceFrames(marked(reader.rows(), source.watermark))
    topic = reader.parsed()
    rows = marked(topic.good(fail=spec.bad_records.fail), source.watermark)
    return SourceFrames(rows, None if spec.bad_records.fail else topic.bad())


def marked(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    """With a watermark, if there is one, and the source is a stream."""
    if watermark is None or not frame.isStreaming:
        return frame
    return frame.withWatermark(watermark.column, watermark.delay)
