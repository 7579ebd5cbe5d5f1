"""WrittenRows: how many rows a stream has written, where Spark does not know it: behind `foreachBatch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WrittenRows:
    """Counts for one stream; `total` is None for as long as nobody has told a number."""

    def __init__(self) -> None:
        self.total: int | None = None

    def counting(self, write: Callable[[DataFrame, int], int | None]) -> Callable[[DataFrame, int], None]:
        """What `foreachBatch` calls, of a function that gives how many rows it has written; None: it does
        not know."""

        def write_counted(frame: DataFrame, batch_id: int) -> None:
            rows = write(frame, batch_id)
            if rows is not None:
                self.total = (self.total or 0) + rows

        return write_counted
