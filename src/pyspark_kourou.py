"""Spark finds this module by its name, and with it the format `rocketmq`: see kourou.spark.

PySpark imports every top-level module named `pyspark_*` when a session first looks for a format, and
registers what it calls `DefaultSource`. One that raises hides all others, so this one never does: where
something is missing there is no `DefaultSource`, and `kourou.spark.register` says what.
"""

import contextlib

with contextlib.suppress(Exception):
    from kourou.spark.source.data_source import RocketmqDataSource as DefaultSource  # noqa: F401
