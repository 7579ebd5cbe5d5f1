"""Batches of a stream are computed as a whole, whatever is used of their rows.

Computing a batch updates the state of aggregations, joins and de-duplications. If its rows are in their
table already, as after a crash, or only the first are printed, the state would lack the rest: Spark (4.3)
fails such a query.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE: Final = "state"
"""The folder of a query's state, below its checkpoint; a query without state has none."""


def compute(frame: DataFrame) -> None:
    """Compute all rows of a batch, and write none."""
    frame.write.format("noop").mode("overwrite").save()


def compute_state(frame: DataFrame, checkpoint: Path | None) -> None:
    """Compute a batch whose rows are written already, if the query has state. Otherwise its messages need not
    exist any more."""
    if checkpoint is not None and (checkpoint / STATE).is_dir():
        compute(frame)
