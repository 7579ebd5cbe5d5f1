"""Database tables, through Spark's format `jdbc` and a driver's jar given by the user.

Spark's own writer commits task by task: a retried batch would be stored twice. So a stream writes each batch
to a staging table, and then, in one transaction of the database, copies it and records the batch's number in
the table `kourou_batches`. Batches already recorded are skipped.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kourou.spark.pipelines.check.document import nearest
from kourou.spark.pipelines.pipeline_errors import PipelineError
from kourou.spark.pipelines.whole_batch import compute_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES: Final = "kourou_batches"
"""The table with the progress of each writer."""
_QUERY_ID: Final = "sql.streaming.queryId"
_MAX_WRITER_CHARS: Final = 200
_SERVICES: Final = "META-INF/services/java.sql.Driver"
_NO_DRIVER: Final = "No suitable driver"
_DRIVER_ADVICE: Final = "; add the jar of the database's driver to jars, and set driver to its class"


def with_driver(options: Mapping[str, str], jars: Iterable[str]) -> dict[str, str]:
    """Options with the driver's class from one of the jars: Java finds only drivers that were present when it
    started."""
    given = dict(options)
    if any(name.lower() == "driver" for name in given):
        return given
    names = [name for jar in jars for name in _drivers(jar)]
    kind = given.get("url", "").removeprefix("jdbc:").partition(":")[0].lower()
    fitting = [name for name in names if kind and kind in name.lower()] or names
    return {**given, "driver": fitting[0]} if fitting else given


def _drivers(jar: str) -> list[str]:
    """The drivers that a jar declares."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(_SERVICES).decode("utf-8", "replace").splitlines()
    except (OSError, KeyError, zipfile.BadZipFile):
        return []
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def exactly_once_writer(
    options: Mapping[str, str], *, app_id: str, checkpoint: Path | None = None
) -> Callable[[DataFrame, int], int]:
    """A function for `foreachBatch` that returns the number of added rows. As with lake.lake_writer, another
    checkpoint is another writer."""

    def write(frame: DataFrame, batch_id: int) -> int:
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        writer = f"{app_id}:{query_id}"
        if len(writer) > _MAX_WRITER_CHARS:
            writer = hashlib.sha256(writer.encode()).hexdigest()
        return JdbcBatch(frame, options, writer, batch_id, checkpoint).write()

    return write


def at_least_once_writer(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """At least once, directly into the table. Spark does not report the number of rows."""

    def write(frame: DataFrame, batch_id: int) -> None:
        save(frame, options, "append")

    return write


def save(frame: DataFrame, options: Mapping[str, str], mode: str) -> None:
    """Write with Spark's own writer."""
    frame.write.format("jdbc").options(**options).mode(mode).save()


class JdbcBatch:
    """One batch on its way into a table."""

    def __init__(
        self,
        frame: DataFrame,
        options: Mapping[str, str],
        writer: str,
        batch_id: int,
        checkpoint: Path | None = None,
    ) -> None:
        self._frame = frame
        self._checkpoint = checkpoint
        self._options = {name: text for name, text in options.items() if name.lower() != "dbtable"}
        self._table = next(text for name, text in options.items() if name.lower() == "dbtable")
        self._writer = writer
        self._batch_id = batch_id
        schema = self._table.rpartition(".")[0]
        digest = hashlib.sha256(writer.encode()).hexdigest()[:12]
        self._staging = f"{schema}.kourou_staging_{digest}" if schema else f"kourou_staging_{digest}"
        self._batches = f"{schema}.{BATCHES}" if schema else BATCHES

    def write(self) -> int:
        """On return the database has committed the rows, now or earlier. Returns the number of new rows."""
        with Database.open(self._frame.sparkSession, self._options, self._table) as database:
            if self._is_there(database):
                compute_state(self._frame, self._checkpoint)
                return 0
            if not database.has(self._table):
                save(self._frame.limit(0), {**self._options, "dbtable": self._table}, "append")
            columns = self._columns(database)
            self._stage(database, columns)
            return self._publish(database, columns)

    def _is_there(self, database: Database) -> bool:
        if not database.has(self._batches):
            database.run(
                f"CREATE TABLE {self._batches} (writer VARCHAR({_MAX_WRITER_CHARS}) NOT NULL PRIMARY KEY, "
                "batch_id BIGINT NOT NULL)"
            )
            database.commit()
        last = database.number(f"SELECT batch_id FROM {self._batches} WHERE writer = ?", self._writer)
        database.commit()
        return last is not None and last >= self._batch_id

    def _columns(self, database: Database) -> str:
        """The table's columns that the rows fill, quoted; names match in any case."""
        known = {name.lower(): name for name in database.columns(self._table)}
        unknown = [name for name in self._frame.columns if name.lower() not in known]
        if unknown:
            words = nearest(unknown[0], list(known.values()))
            raise PipelineError(f"table {self._table} has no column {unknown[0]}; {words}")
        return ", ".join(database.quoted(known[name.lower()]) for name in self._frame.columns)

    def _stage(self, database: Database, columns: str) -> None:
        if database.has(self._staging):
            database.run(f"DROP TABLE {self._staging}")
        database.run(f"CREATE TABLE {self._staging} AS SELECT {columns} FROM {self._table} WHERE 1 = 0")
        database.commit()
        save(self._frame, {**self._options, "dbtable": self._staging}, "append")

    def _publish(self, database: Database, columns: str) -> int:
        """One transaction: the rows, and the batch number. It fails if another process wrote the same batch,
        as the number may only increase."""
        rows = database.run(f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {self._staging}")
        changed = database.run(
            f"UPDATE {self._batches} SET batch_id = ? WHERE writer = ? AND batch_id < ?",
            self._batch_id,
            self._writer,
            self._batch_id,
        )
        if not changed:
            database.run(
                f"INSERT INTO {self._batches} (writer, batch_id) VALUES (?, ?)", self._writer, self._batch_id
            )
        database.commit()
        database.run(f"DROP TABLE {self._staging}")
        database.commit()
        return rows


class Database:
    """A connection of the driver's JVM, with one transaction at a time."""

    def __init__(self, connection: Any, dialect: Any) -> None:
        self._connection = connection
        self._dialect = dialect

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, options: Mapping[str, str], table: str) -> Iterator[Database]:
        """A connection with Spark's options. PipelineError with the database's message for any failure."""
        from py4j.protocol import Py4JJavaError

        jvm: Any = spark.sparkContext._jvm
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
        connection = None
        try:
            scala_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({**options, "dbtable": table})
            dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
            connection = dialect.createConnectionFactory(jdbc.JDBCOptions(scala_map)).apply(-1)
            connection.setAutoCommit(False)
            yield cls(connection, dialect)
        except Py4JJavaError as error:
            raise PipelineError(f"the database reports: {describe_java_error(error)}") from error
        finally:
            if connection is not None:
                with suppress(Py4JJavaError):
                    connection.rollback()
                with suppress(Py4JJavaError):
                    connection.close()

    def has(self, table: str) -> bool:
        from py4j.protocol import Py4JJavaError

        try:
            self.columns(table)
        except Py4JJavaError:
            # Some databases reject everything after a failure until the transaction ends.
            self._connection.rollback()
            return False
        return True

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns."""
        statement = self._connection.prepareStatement(f"SELECT * FROM {table} WHERE 1 = 0")
        try:
            found = statement.executeQuery().getMetaData()
            return [str(found.getColumnName(at)) for at in range(1, found.getColumnCount() + 1)]
        finally:
            statement.close()

    def quoted(self, name: str) -> str:
        """A name as this database quotes it."""
        return str(self._dialect.quoteIdentifier(name))

    def run(self, sql: str, *arguments: str | int) -> int:
        """Run a statement; returns the number of changed rows."""
        statement = self._prepared(sql, arguments)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def number(self, sql: str, *arguments: str | int) -> int | None:
        """The number in the first row, or None."""
        statement = self._prepared(sql, arguments)
        try:
            rows = statement.executeQuery()
            return int(rows.getLong(1)) if rows.next() else None
        finally:
            statement.close()

    def commit(self) -> None:
        self._connection.commit()

    def _prepared(self, sql: str, arguments: tuple[str | int, ...]) -> Any:
        statement = self._connection.prepareStatement(sql)
        for at, argument in enumerate(arguments, 1):
            if isinstance(argument, int):
                statement.setLong(at, argument)
            else:
                statement.setString(at, argument)
        return statement


def describe_java_error(error: Any) -> str:
    """Java's message in one line, without a stack trace."""
    java = error.java_exception
    words = " ".join(str(java.getMessage() or java.toString()).split())
    return f"{words}{_DRIVER_ADVICE}" if _NO_DRIVER in words else words
