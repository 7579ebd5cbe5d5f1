"""Whether an archive has messages in the range of a replay: by its days, without Spark.

A day within the range may still have no matching message: only the rows show that (replay_rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from kourou.errors import ConfigError
from kourou.spark.pipelines.archive.archive_folder import DATE, ArchiveFolder
from kourou.spark.pipelines.lake.lake import open_backend

DAY_MS: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1)


def check_range(
    archive: ArchiveFolder, topics: Sequence[str], from_ms: int | None, until_ms: int | None
) -> None:
    """ConfigError if none of the days on which messages of these topics were stored is in the range."""
    days = archived_days(archive, topics)
    if not days:
        return
    # Milliseconds may exceed the years of Python's dates.
    numbers = [(day - _EPOCH).days for day in days]
    if from_ms is not None:
        numbers = [number for number in numbers if number >= from_ms // DAY_MS]
    if until_ms is not None:
        numbers = [number for number in numbers if number <= until_ms // DAY_MS]
    if not numbers:
        raise ConfigError(no_messages(archive, topics, f"{min(days)}", f"{max(days)} (UTC)"))


def archived_days(archive: ArchiveFolder, topics: Sequence[str]) -> set[date]:
    """The UTC days on which messages of these topics were stored; empty if the files do not show it."""
    snapshot = open_backend(archive.table).snapshot()
    partitions = [dict(file.partition) for file in snapshot.files] if snapshot is not None else []
    days = {partition.get(DATE) for partition in partitions if partition.get("topic") in topics}
    try:
        return {date.fromisoformat(str(day)) for day in days}
    except ValueError:
        return set()


def no_messages(archive: ArchiveFolder, topics: Sequence[str], first: str, last: str) -> str:
    """The error for an empty range, with the times of the archived messages."""
    return (
        f"{archive.path}: no messages of {', '.join(topics)} in the requested "
        f"range; the archive's were stored from {first} to {last}"
    )
