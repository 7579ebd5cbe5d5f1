"""The audit: every order's life, replayed from the topics, agrees with the database, to the cent.

    python -m webshop.spark.audit [--archive DIR]

Reads the topics, and the database that SHOP_SETTINGS names; changes nothing. Prints what was compared, and
each disagreement with order, table, column and both values. Exit code 1 if there is one. It may run beside
the shop: orders that have changed within the last seconds (`--settle`) are left out, and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import psycopg

from kourou.errors import KourouError
from webshop.money import shown
from webshop.settings import Settings, SettingsError
from webshop.spark.database import Snapshot
from webshop.spark.replay import AMOUNTS, CHECKS, TOPICS, Check, Replay

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Many queries with few rows each: compiling code for them would take longer than running them."""
_SETTLE_S: Final = 30.0
_MOST: Final = 200
"""Disagreements that are printed."""
_CENTS: Final = frozenset({*AMOUNTS, "amount", "value", "balance", "spent"})
_ROW: Final = "the row"


@dataclass(frozen=True)
class Disagreement:
    """A value that is not what the topics say."""

    table: str
    key: str
    """`goods_id = teapot`: which row."""
    order_id: str | None
    """The order; None for rows that sum up several."""
    column: str
    replayed: str | None
    stored: str | None

    def __str__(self) -> str:
        where = f"order {self.order_id}" if self.order_id else self.key
        also = f" ({self.key})" if self.order_id and "order_id" not in self.key else ""
        if self.column == _ROW:
            return f"{where}{also}: {self.table}: {self.stored}, but the topics say: {self.replayed}"
        return (
            f"{where}{also}: {self.table}, column {self.column}: "
            f"the topics say {self._value(self.replayed)}, stored is {self._value(self.stored)}"
        )

    def _value(self, value: str | None) -> str:
        if value is None:
            return "nothing"
        return f"{value} ({shown(int(value))})" if self.column in _CENTS else value


@dataclass(frozen=True)
class Report:
    """The result of an audit."""

    counts: dict[str, int]
    """`messages`, `events`, `orders`; `moving` orders were left out, `unreadable` messages are no events."""
    rows: dict[str, int]
    """How many were compared, by table."""
    disagreements: list[Disagreement]

    @property
    def is_right(self) -> bool:
        return not self.disagreements and not self.counts["unreadable"]

    def lines(self) -> list[str]:
        """For people."""
        counts = self.counts
        lines = [
            f"audit: {counts['orders']:,} orders in {counts['messages']:,} messages of "
            f"{' and '.join(TOPICS)}; {counts['events']:,} of these are not repeats"
        ]
        if counts["moving"]:
            lines.append(f"audit: {counts['moving']:,} orders are under way, and left out")
        for check in CHECKS:
            wrong = sum(each.table == check.table for each in self.disagreements)
            result = f"{wrong:,} disagreements" if wrong else "agree"
            compared = f"{self.rows.get(check.table, 0):,} rows ({', '.join(check.columns)})"
            lines.append(f"audit: {check.table}: {compared}: {result}")
        if counts["unreadable"]:
            lines.append(f"audit: {counts['unreadable']:,} messages are no events of the shop")
        lines += [f"DISAGREEMENT {each}" for each in self.disagreements[:_MOST]]
        if len(self.disagreements) > _MOST:
            lines.append(f"… and {len(self.disagreements) - _MOST:,} more; --json prints all")
        return [*lines, "audit: topics and database agree" if self.is_right else "audit: they do NOT agree"]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"is_right": self.is_right, **asdict(self)}


def audit(
    spark: SparkSession,
    *,
    namesrv: str,
    database: str,
    archives: Sequence[str] = (),
    settle_s: float = _SETTLE_S,
) -> Report:
    """Compare the topics with the database."""
    with Snapshot.open(database, spark) as snapshot, Replay(spark, snapshot) as replay:
        replay.make_views(read_messages(spark, namesrv, archives), settle_s=settle_s)
        compared = _compared(replay).localCheckpoint()
        rows = {row["table"]: row["count"] for row in compared.groupBy("table").count().collect()}
        wrong = compared.where("NOT replayed <=> stored").collect()
        found = [each for row in wrong for each in _disagreements(row)]
        return Report(replay.counts(), rows, sorted(found, key=_place))


def read_messages(spark: SparkSession, namesrv: str, archives: Sequence[str] = ()) -> DataFrame:
    """The messages of the topics, and those of archives, which may be in both."""
    from kourou.spark import open_archive, read_lake

    live = (
        spark.read.format("rocketmq")
        .schema("value string, store_timestamp timestamp")
        .option("namesrv", namesrv)
        .option("subscribe", ",".join(TOPICS))
        .load()
        .withColumnRenamed("store_timestamp", "stored_at")
    )
    names = ", ".join(f"'{topic}'" for topic in TOPICS)
    for folder in archives:
        rows = read_lake(spark, open_archive(folder).table).where(f"topic IN ({names})")
        live = live.union(rows.selectExpr("CAST(value AS string)", "store_timestamp"))
    return live


def _compared(replay: Replay) -> DataFrame:
    """A row for each key of each table, with what the topics say and what is stored: a set of rows each, as
    arrays of the columns' values; empty if there is none."""
    from pyspark.sql import functions as F

    sides = [
        side
        for check in CHECKS
        for side in (
            _side(check, replay.replayed_rows(check), "replayed"),
            _side(check, replay.stored_rows(check), "stored"),
        )
    ]
    rows = reduce(lambda one, other: one.union(other), sides)
    settled = rows.join(replay.moving(), ["kind", "id"], "left_anti")

    def of_side(name: str) -> Column:
        return F.array_sort(F.collect_set(F.when(F.col("side") == name, F.col("row")))).alias(name)

    order_id = F.max("order_id").alias("order_id")
    return settled.groupBy("table", "key").agg(order_id, of_side("replayed"), of_side("stored"))


def _side(check: Check, rows: DataFrame, side: str) -> DataFrame:
    key = ", ' ', ".join(f"'{name} = ', {name}" for name in check.key)
    values = ", ".join(f"CAST({name} AS string)" for name in check.columns)
    return rows.selectExpr(
        f"'{check.table}' AS table",
        f"concat({key}) AS key",
        ("order_id" if "order_id" in rows.columns else "CAST(NULL AS string)") + " AS order_id",
        f"'{check.moving}' AS kind",
        f"{check.moving} AS id",
        f"'{side}' AS side",
        f"array({values}) AS row",
    )


def _disagreements(row: Any) -> Iterator[Disagreement]:
    """The values in which a row differs; if there are several of one key, those of each."""
    replayed, stored = row["replayed"], row["stored"]
    place = (row["table"], row["key"], row["order_id"])
    if not replayed or not stored:
        words = ("there is none", "there is one")
        yield Disagreement(*place, _ROW, words[bool(replayed)], words[bool(stored)])
        return
    columns = next(check.columns for check in CHECKS if check.table == row["table"])
    for one in [each for each in stored if each not in replayed] or stored:
        for column, expected, found in zip(columns, replayed[0], one, strict=True):
            if expected != found:
                yield Disagreement(*place, column, expected, found)


def _place(each: Disagreement) -> tuple[int, str, str]:
    """Sorts by table, in the order of CHECKS."""
    tables = [check.table for check in CHECKS]
    return tables.index(each.table), each.key, each.column


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m webshop.spark.audit", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument(
        "--settings", help="the shop's settings; by default the file that SHOP_SETTINGS names"
    )
    parser.add_argument("--archive", action="append", default=[], metavar="DIR",
                        help="an archive of the topics, for events that brokers have deleted")  # fmt: skip
    parser.add_argument("--settle", type=float, default=_SETTLE_S, metavar="SECONDS",
                        help="leave out orders that have changed within this time; 0: none")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        settings = Settings.load(options.settings)
    except SettingsError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    from pyspark.errors import PySparkException

    from kourou.spark import local_session

    spark = local_session(
        "shop audit",
        master="local[2]",
        settings={
            **SETTINGS,
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        },
        fast_start=True,
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        report = audit(
            spark,
            namesrv=settings.namesrv,
            database=settings.database,
            archives=options.archive,
            settle_s=options.settle,
        )
    except (psycopg.OperationalError, PySparkException, KourouError) as error:
        print(f"audit: {str(error).strip().splitlines()[0]}; is the shop running?", file=sys.stderr)
        return 2
    print(json.dumps(report.as_json()) if options.json else "\n".join(report.lines()))
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
