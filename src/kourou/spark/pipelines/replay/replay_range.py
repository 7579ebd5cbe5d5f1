"""Whether an archive has anything of the times that a replay asks for: by its days, without Spark.

A day that is within the range may have no message of it all the same: only rows tell (replay_rows.py).
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
    """ConfigError: no day on which messages of these topics were stored is in the range."""
    days = archived_days(archive, topics)
    if not days:
        return
    # Milliseconds may be of any year, and Python's days are not.
    numbers = [(day - _EPOCH).days for day in days]
    if from_ms is not None:
        numbers = [number for number in numbers if number >= from_ms // DAY_MS]
    if until_ms is not None:
        numbers = [number for number in numbers if number <= until_ms // DAY_MS]
    if not numbers:
        raise ConfigError(no_messages(archive, topics, f"{min(days)}", f"{max(days)} (UTC)"))


def archived_days(archive: ArchiveFolder, topics: Sequence[str]) -> set[date]:
    """The days, in UTC, on which messages of these topics were stored; none if files do not tell."""
    snapshot = open_backend(archive.table).snapshot()
    partitions = [dict(file.partition) for file in snapshot.files] if snapshot is not None else []
    days = {partition.get(DATE) for partition in partitions if partition.get("topic") in topics}
    try:
        return {date.fromisoformat(str(day)) for day in days}
    except ValueError:
        return set()


def no_messages(archive: ArchiveFolder, topics: Sequence[str], first: str, last: str) -> str:
    """Words about a range that has nothing, with the times of what there is."""
    return (
        f"{archive.path}: there are no messages of {', '.join(topics)} in the range "
        f"asked for; the archive's were stored from {first} to {last}"
    )
