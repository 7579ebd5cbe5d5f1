"""Regions of a log in memory: asked for in large and small, believed for a second, few maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.log import log_regions
from kourou.store.log.log_file import LogFile
from kourou.store.log.log_regions import REGION_BYTES, LogRegions

FILE_BYTES = 2 * REGION_BYTES
SMALL_BYTES = 256 * 1024


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FileDouble(LogFile):
    """A log file of which a test says what is in memory."""

    __slots__ = ("asked", "resident_end")

    def __init__(self, path: Path, start_phy_offset: int) -> None:
        super().__init__(Files().open(path), start_phy_offset, FILE_BYTES)
        self.resident_end = self.end_phy_offset
        self.asked = 0

    def is_resident(self, phy_offset: int, end_phy_offset: int) -> bool:
        self.asked += 1
        return end_phy_offset <= self.resident_end


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[FileDouble]]:
    made = []
    for number in range(6):
        path = tmp_path / str(number)
        path.write_bytes(bytes(FILE_BYTES))
        made.append(FileDouble(path, number * FILE_BYTES))
    yield made
    for file in made:
        file.close()


def test_a_region_is_asked_for_once_a_second(files: list[FileDouble]) -> None:
    clock = Clock()
    regions = LogRegions(clock)
    first = regions.at(files[0], 100, FILE_BYTES)
    assert first is not None and (first.low, first.end) == (0, REGION_BYTES)
    assert regions.at(files[0], REGION_BYTES - 1, FILE_BYTES) is first
    assert files[0].asked == 1
    clock.now = 1.0
    assert regions.at(files[0], 100, FILE_BYTES) is not first
    assert files[0].asked == 2


def test_several_regions_are_one_window(files: list[FileDouble]) -> None:
    clock = Clock()
    regions = LogRegions(clock)
    found = regions.over(files[0], 100, REGION_BYTES + 1, FILE_BYTES)
    assert found is not None and (found.start, found.low, found.end) == (0, 0, FILE_BYTES)
    assert files[0].asked == 2
    assert regions.over(files[0], 100, REGION_BYTES, FILE_BYTES) is regions.at(files[0], 0, FILE_BYTES)
    assert files[0].asked == 2, "both are believed"


def test_regions_one_of_which_is_not_in_memory_are_no_window(files: list[FileDouble]) -> None:
    files[0].resident_end = REGION_BYTES + 2 * SMALL_BYTES
    regions = LogRegions(Clock())
    found = regions.over(files[0], 100, REGION_BYTES + SMALL_BYTES + 1, FILE_BYTES)
    assert found is not None and (found.low, found.end) == (0, REGION_BYTES + 2 * SMALL_BYTES)
    assert regions.over(files[0], 100, REGION_BYTES + 2 * SMALL_BYTES + 1, FILE_BYTES) is None


def test_where_not_all_is_in_memory_a_small_one_may_be(files: list[FileDouble]) -> None:
    regions = LogRegions(Clock())
    files[0].resident_end = SMALL_BYTES
    found = regions.at(files[0], 100, FILE_BYTES)
    assert found is not None and (found.low, found.end) == (0, SMALL_BYTES)
    assert regions.at(files[0], SMALL_BYTES, FILE_BYTES) is None


def test_nothing_is_shown_behind_the_end_of_the_log(files: list[FileDouble]) -> None:
    regions = LogRegions(Clock())
    found = regions.at(files[1], FILE_BYTES + 10, FILE_BYTES + 300)
    assert found is not None and (found.start, found.low, found.end) == (
        FILE_BYTES,
        FILE_BYTES,
        FILE_BYTES + 300,
    )
    later = regions.at(files[1], FILE_BYTES + 300, FILE_BYTES + 900)
    assert later is not None and later.end == FILE_BYTES + 900


@pytest.mark.parametrize(
    ("limit", "value", "kept"),
    [("_MAX_MAPPED_BYTES", 4 * FILE_BYTES, 4), ("_MAX_MAPS", 3, 3), ("_MAX_MAPPED_BYTES", FILE_BYTES - 1, 1)],
)
def test_few_old_files_stay_mapped(
    files: list[FileDouble], monkeypatch: pytest.MonkeyPatch, limit: str, value: int, kept: int
) -> None:
    monkeypatch.setattr(log_regions, limit, value)
    regions = LogRegions(Clock())
    for file in (*files[:4], *files):
        assert regions.at(file, file.start_phy_offset, 6 * FILE_BYTES) is not None
    assert [file._map is not None for file in files] == [n >= 6 - kept for n in range(6)]


def test_a_file_that_is_forgotten_leaves_room(
    files: list[FileDouble], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_regions, "_MAX_MAPPED_BYTES", 2 * FILE_BYTES)
    regions = LogRegions(Clock())
    for file in (files[0], files[1]):
        assert regions.at(file, file.start_phy_offset, 6 * FILE_BYTES) is not None
    regions.forget(files[1])
    assert regions.at(files[2], files[2].start_phy_offset, 6 * FILE_BYTES) is not None
    assert [file._map is not None for file in files[:3]] == [True, False, True]


def test_what_is_forgotten_is_asked_for_again(files: list[FileDouble]) -> None:
    regions = LogRegions(Clock())
    found = regions.at(files[0], 0, FILE_BYTES)
    regions.clear()
    assert regions.at(files[0], 0, FILE_BYTES) is not found
    regions.forget(files[0])
    assert files[0]._map is None
