"""RocketMQ topics as Spark DataFrames, through PySpark alone: no JAR.

    from kourou.spark import register

    register(spark)
    orders = spark.readStream.format("rocketmq").option("namesrv", "127.0.0.1:9876") \\
        .option("subscribe", "orders").load()

Names here are loaded on first use: importing this package needs neither PySpark nor Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.lazy_exports import lazy_exports

_INSTALL: Final = "the Spark connector needs PySpark and pyarrow: pip install 'kourou[spark]'"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kourou.spark.pipelines.archive.archive_folder import open_archive
    from kourou.spark.pipelines.lake.lake import parquet_files, read_lake
    from kourou.spark.session import local_session
    from kourou.spark.source.data_loss import DataLossError
    from kourou.spark.source.data_source import RocketmqDataSource
    from kourou.spark.source.lag_listener import LagListener, StreamLag, stream_lag
    from kourou.spark.source.progress_publisher import ProgressPublisher
    from kourou.spark.source.stream_metrics import StreamMetrics
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "kourou.spark.pipelines.archive.archive_folder": ("open_archive",),
            "kourou.spark.pipelines.lake.lake": ("parquet_files", "read_lake"),
            "kourou.spark.session": ("local_session",),
            "kourou.spark.source.data_loss": ("DataLossError",),
            "kourou.spark.source.data_source": ("RocketmqDataSource",),
            "kourou.spark.source.lag_listener": ("LagListener", "StreamLag", "stream_lag"),
            "kourou.spark.source.progress_publisher": ("ProgressPublisher",),
            "kourou.spark.source.stream_metrics": ("StreamMetrics",),
        },
        install=_INSTALL,
    )

__all__ = [
    "DataLossError",
    "LagListener",
    "ProgressPublisher",
    "RocketmqDataSource",
    "StreamLag",
    "StreamMetrics",
    "local_session",
    "open_archive",
    "parquet_files",
    "read_lake",
    "register",
    "stream_lag",
]


def register(spark: SparkSession) -> None:
    """Register the format `rocketmq` with a session. Not needed where Spark finds `pyspark_kourou` by
    itself."""
    try:
        from kourou.spark.source.data_source import RocketmqDataSource
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    spark.dataSource.register(RocketmqDataSource)
