"""Spark's part of the demo: orders from a topic, windowed by SQL, written as Parquet and read back.

A separate program, so that Java's output does not mix with the demo's: `python -m kourou.cli.demo.spark_job
NAMESRV FOLDER` prints the windows as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

TOPIC: Final = "Sales"
WINDOWS_SQL: Final = """
    SELECT date_format(window.start, 'HH:mm') AS since,
           count(*) AS orders,
           sum(amount) AS amount,
           mode(item) AS most_sold
    FROM orders
    GROUP BY window(at, '10 minutes')
    ORDER BY window.start
"""
_ORDER: Final = "id string, item string, amount decimal(10,2), at timestamp"


def main(namesrv: str, folder: Path) -> None:
    """Print the windows of all orders in the topic. Writes Parquet below `folder`."""
    from kourou.spark.session import local_session

    settings = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    spark = local_session("kourou-demo", master="local[2]", settings=settings, fast_start=True)
    spark.sparkContext.setLogLevel("ERROR")
    topic = spark.read.format("rocketmq").schema("value string")
    messages = topic.option("namesrv", namesrv).option("subscribe", TOPIC).load()
    messages.selectExpr(f"from_json(value, '{_ORDER}') AS it").select("it.*").createOrReplaceTempView(
        "orders"
    )
    parquet = str(folder / "windows.parquet")
    spark.sql(WINDOWS_SQL).coalesce(1).write.parquet(parquet)
    rows = spark.read.parquet(parquet).collect()
    print(json.dumps([[row.since, row.orders, str(row.amount), row.most_sold] for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
