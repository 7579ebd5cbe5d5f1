"""WrittenRows: the number of rows written by a stream, where Spark does not know it: in `foreachBatch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WrittenRows:
    """Counts for one stream; `total` is None until a number is reported."""

    def __init__(self) -> None:
        self.total: int | None = None

    def counting(self, write: Callable[[DataFrame, int], int | None]) -> Callable[[DataFrame, int], None]:
        """Wraps a function for `foreachBatch` that returns the number of written rows, or None if unknown."""

        def write_counted(frame: DataFrame, batch_id: int) -> None:
            rows = write(frame, batch_id)
            if rows is not None:
                self.total = (self.total or 0) + rows

        return write_counted
