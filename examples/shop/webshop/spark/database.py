"""Database: the shop's tables as DataFrames, by psycopg and Arrow: no JDBC driver, no JAR.

All tables are read in one read-only transaction: a snapshot of the whole database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString

import psycopg
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = 10_000
_TYPES: Final = {
    "text": pa.string(),
    "int4": pa.int64(),
    "int8": pa.int64(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


class Snapshot:
    """The database at one moment."""

    def __init__(self, connection: psycopg.Connection[Any], spark: SparkSession) -> None:
        self._connection = connection
        self._spark = spark

    @classmethod
    @contextmanager
    def open(cls, address: str, spark: SparkSession) -> Iterator[Snapshot]:
        """A snapshot of the database at this address, until the end of the block."""
        with psycopg.connect(address) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield cls(connection, spark)

    def taken_at(self) -> datetime:
        """The moment, by the database's clock."""
        row = self._connection.execute("SELECT now()").fetchone()
        assert row is not None
        moment: datetime = row[0]
        return moment

    def frame(self, query: LiteralString) -> DataFrame:
        """The rows of a query."""
        return self._spark.createDataFrame(self.table(query))

    def table(self, query: LiteralString) -> pa.Table:
        """The rows of a query; they come in portions, so that only Arrow's form of them is in memory."""
        with self._connection.cursor("audit") as cursor:
            cursor.execute(query)
            assert cursor.description is not None
            types = self._connection.adapters.types
            schema = pa.schema(
                [(each.name, _TYPES[types[each.type_code].name]) for each in cursor.description]
            )
            batches = []
            while rows := cursor.fetchmany(_ROWS):
                columns = zip(*rows, strict=True)
                arrays = [
                    pa.array(list(each), type) for each, type in zip(columns, schema.types, strict=True)
                ]
                batches.append(pa.record_batch(arrays, schema))
        return pa.Table.from_batches(batches, schema)
