"""A process that writes numbered batches to a lake table and compacts it, until it is killed.

    lake_child.py FORMAT FOLDER BATCHES

It continuing after the last batch that the table has, prints each batch that is there, and ends with BATCHES.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kourou.spark.pipelines.lake.lake import compact, open_backend
from tests.unit.pipelines.lake_kit import put, table_of

ROWS = 10


def main() -> None:
    """Write until all is there."""
    format, folder, batches = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    table = table_of(format, folder)
    last = open_backend(table).last_batch_id("app")
    # As Spark does, which may not know of the last one.
    for batch_id in range(max(0, -1 if last is None else last), batches):
        put(table, batch_id, list(range(batch_id * ROWS, (batch_id + 1) * ROWS)))
        print(batch_id, flush=True)
        if batch_id % 3 == 2:
            compact(table, min_files=2)


if __name__ == "__main__":
    main()
