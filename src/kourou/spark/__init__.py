"""RocketMQ topics as Spark DataFrames, through PySpark alone: no JAR.

    from kourou.spark import register

    register(spark)
    orders = spark.readStream.format("rocketmq").option("namesrv", "127.0.0.1:9876") \\
        .option("subscribe", "orders").load()

Names here are loaded on first use: importing this package needs neither PySpark nor Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kourou.spark.session import local_session
    from kourou.spark.source.data_loss import DataLossError
    from kourou.spark.source.data_source import RocketmqDataSource
    from kourou.spark.source.lag_listener import LagListener, StreamLag, stream_lag

__all__ = [
    "DataLossError",
    "LagListener",
    "RocketmqDataSource",
    "StreamLag",
    "local_session",
    "register",
    "stream_lag",
]

_HOMES = {
    "DataLossError": "kourou.spark.source.data_loss",
    "LagListener": "kourou.spark.source.lag_listener",
    "StreamLag": "kourou.spark.source.lag_listener",
    "stream_lag": "kourou.spark.source.lag_listener",
    "RocketmqDataSource": "kourou.spark.source.data_source",
    "local_session": "kourou.spark.session",
}
_INSTALL = "the Spark connector needs PySpark and pyarrow: pip install 'kourou[spark]'"


def register(spark: SparkSession) -> None:
    """Make the format `rocketmq` known to a session. Sessions that find `pyspark_kourou` know it already."""
    try:
        from kourou.spark.source.data_source import RocketmqDataSource
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    spark.dataSource.register(RocketmqDataSource)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(
            f"module 'kourou.spark' has no attribute '{name}'; it offers {', '.join(__all__)}"
        )
    try:
        value: object = getattr(import_module(home), name)
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
