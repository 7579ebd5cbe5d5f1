"""A replay of times without a day in the archive fails without starting Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.spark.pipelines.archive.archive_folder import ArchiveFolder, ensure_archive
from kourou.spark.pipelines.replay.replay_range import DAY_MS, archived_days, check_range
from tests.unit.pipelines.lake_kit import AT, DAY, FORMATS, put

BEGIN_MS = round(datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC).timestamp() * 1000)


def archive_of(folder: Path, format: str = "parquet") -> ArchiveFolder:
    archive = ensure_archive(folder / "archive", topics=["orders", "payments"], format=format)
    archive.save()
    put(archive.table, 0, [1, 2, 3])
    return archive


@pytest.mark.parametrize("format", FORMATS)
def test_days_are_those_of_the_topics_asked_for(tmp_path: Path, format: str) -> None:
    archive = archive_of(tmp_path, format)
    assert archived_days(archive, ["orders"]) == {DAY} == {AT.date()}
    assert archived_days(archive, ["payments"]) == set()


@pytest.mark.parametrize(
    ("from_ms", "until_ms"),
    [(None, None), (BEGIN_MS, None), (BEGIN_MS + DAY_MS - 1, None), (None, BEGIN_MS + 1), (0, BEGIN_MS + 5)],
)
def test_a_range_that_has_a_day_is_left_to_spark(
    tmp_path: Path, from_ms: int | None, until_ms: int | None
) -> None:
    check_range(archive_of(tmp_path), ["orders"], from_ms, until_ms)


@pytest.mark.parametrize(
    ("from_ms", "until_ms"),
    # The last are microseconds, a mistake that is often made.
    [(BEGIN_MS + DAY_MS, None), (None, BEGIN_MS - 1), (0, 1_000), (BEGIN_MS * 1000, None)],
)
def test_a_range_without_a_day_is_reported(tmp_path: Path, from_ms: int | None, until_ms: int | None) -> None:
    archive = archive_of(tmp_path)
    with pytest.raises(ConfigError) as error:
        check_range(archive, ["orders"], from_ms, until_ms)
    assert str(error.value) == (
        f"{archive.path}: no messages of orders in the requested range; the archive's were stored "
        "from 2026-01-31 to 2026-01-31 (UTC)"
    )


def test_what_files_do_not_specify_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_of(tmp_path)
    monkeypatch.setattr("kourou.spark.pipelines.replay.replay_range.DATE", "another")
    assert archived_days(archive, ["orders"]) == set()
    check_range(archive, ["orders"], 0, 1)
