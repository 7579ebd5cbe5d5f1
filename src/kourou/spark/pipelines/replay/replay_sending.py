"""How the rows of a slice are sent, in Spark's workers: as the sink sends them, at the pace asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kourou.spark.sink.sink_columns import SinkColumns
    from kourou.spark.sink.sink_options import SinkOptions

SENT_SCHEMA: Final = "rows bigint, refused bigint"
_PIECES_A_SECOND: Final = 10


def paced(
    batches: Iterator[Any],
    rows_per_second: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Any]:
    """Arrow batches in pieces of a tenth of a second, none before the rate allows it; None: as they come."""
    if rows_per_second is None:
        yield from batches
        return
    piece_rows = max(1, int(rows_per_second / _PIECES_A_SECOND))
    begun, given = clock(), 0
    for batch in batches:
        for first in range(0, batch.num_rows, piece_rows):
            wait_s = begun + given / rows_per_second - clock()
            if wait_s > 0:
                sleep(wait_s)
            piece = batch.slice(first, piece_rows)
            yield piece
            given += piece.num_rows
    # What comes next begins as late as if it belonged to this.
    wait_s = begun + given / rows_per_second - clock()
    if wait_s > 0:
        sleep(wait_s)


def sending(
    options: SinkOptions, columns: SinkColumns, rows_per_second: float | None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For `mapInArrow`: sends the rows of a task and gives their number, in one row."""

    def send(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        from kourou.spark.sink.sending import RowSender
        from kourou.spark.sink.sink_producer import worker_producer

        context = TaskContext.get()
        sender = RowSender(
            options, columns, worker_producer(options), 0 if context is None else context.partitionId()
        )
        counts = sender.send(paced(batches, rows_per_second))
        yield pa.RecordBatch.from_pydict({"rows": [counts.rows], "refused": [counts.refused_rows]})

    return send
