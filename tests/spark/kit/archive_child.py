"""A process that archives or replays and may be killed by itself at a certain moment, for tests.

    archive_child.py archive REQUEST_JSON [MOMENT [TIMES]]
    archive_child.py replay REQUEST_JSON

Moments: `staged` (Spark has written a batch's files), `moved` (they lie where data lies), `committed` (the
table has the batch, Spark's checkpoint has not), `merged` (compaction has written its file), `replaced` (the
table has it). The process is killed when the moment comes for the TIMESth time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.lake.lake_delta import DeltaLake
from kourou.spark.pipelines.lake.lake_iceberg import IcebergLake
from kourou.spark.pipelines.lake.lake_parquet import ParquetLake
from kourou.spark.pipelines.replay import replay

BACKENDS = (ParquetLake, DeltaLake, IcebergLake)


class Killer:
    """Kills this process."""

    def __init__(self, times: int) -> None:
        self._left = times

    def __call__(self) -> None:
        """The moment is here."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, and the moment behind it."""

        def wrapped(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            self()
            return result

        return wrapped


def arm(moment: str, times: int) -> None:
    """Be killed at a moment."""
    killer = Killer(times)
    functions = {
        "staged": "lake.lake.stage",
        "moved": "lake.lake.take_staged",
        "merged": "lake.lake_compaction.take_staged",
    }
    if moment in functions:
        where, _, name = functions[moment].rpartition(".")
        module = import_module(f"kourou.spark.pipelines.{where}")
        setattr(module, name, killer.after(getattr(module, name)))
    else:
        name = {"committed": "append", "replaced": "replace"}[moment]
        for backend in BACKENDS:
            setattr(backend, name, killer.after(getattr(backend, name)))


def main() -> None:
    """Do what the arguments say."""
    kind, request = sys.argv[1], json.loads(sys.argv[2])
    for name in ("topics",):
        request[name] = tuple(request.get(name, ()))
    if len(sys.argv) > 3:
        arm(sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    common: dict[str, Any] = {"master": "local[2]", "fast_start": True, "as_json": True}
    if kind == "archive":
        archive.run_archive(archive.ArchiveRequest(**request, **common))
    else:
        setattr(replay, "_SLICE_S", 1)  # noqa: B010  it is Final
        replay.run_replay(replay.ReplayRequest(**request, **common))


if __name__ == "__main__":
    main()
