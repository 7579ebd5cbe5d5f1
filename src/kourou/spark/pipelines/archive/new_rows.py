"""Whether a stream has anything to read, found without Spark: by its checkpoint, and by asking brokers.

    CHECKPOINT/offsets/N   `v1`, a line of Spark's own, and where batch N ends, a line for each source
    CHECKPOINT/commits/N   batch N is done

Files are Spark's: what is not surely understood counts as news, and Spark finds out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kourou.errors import KourouError
from kourou.spark.source.offsets import Positions

_VERSION: Final = "v1"


def has_new_rows(options: Mapping[str, str], checkpoint: Path) -> bool:
    """Whether a run that ends behind what is there now has work: a batch that is not done, or messages."""
    from kourou.spark.source.options import SourceOptions
    from kourou.spark.source.source_client import shared_client

    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        from kourou.spark.source.stream_driver import StreamDriver
    except ImportError:  # whoever starts Spark says what to install
        return True
    parsed = SourceOptions.parse(options)
    # The one that decides in a run, too.
    driver = StreamDriver(shared_client(parsed.connection), parsed)
    try:
        start = driver.initial() if is_new(checkpoint) else committed_positions(checkpoint)
        if start is None:
            return True
        driver.stop_at_now()
        return driver.batch_end(start, ReadAllAvailable()) is not None
    except KourouError:  # the run meets it, and tells it in its own words
        return True


def is_new(checkpoint: Path) -> bool:
    """Whether no batch was ever begun."""
    return not _batches(checkpoint / "offsets") and not _batches(checkpoint / "commits")


def committed_positions(checkpoint: Path) -> Positions | None:
    """Where the last batch ended; None: it is not done, or what stands there is not known here."""
    begun, done = _batches(checkpoint / "offsets"), _batches(checkpoint / "commits")
    if not begun or not done or max(begun) != max(done):
        return None
    try:
        version, _, offset = (checkpoint / "offsets" / str(max(begun))).read_text().splitlines()
        return Positions.from_json(json.loads(offset)) if version == _VERSION else None
    except (OSError, ValueError, KourouError):
        return None


def _batches(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
