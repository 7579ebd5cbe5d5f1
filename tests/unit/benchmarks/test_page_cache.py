"""The page cache: what has just been read is in it, and what was dropped is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks import _page_cache

from tests.memory_folder import disk_tmp_path  # noqa: F401 (these files are on disk)


def _is_on_memory(folder: Path) -> bool:
    """tmpfs and its like have no disk to drop pages to."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    points = [(len(words[1]), words[2]) for words in mounts if folder.is_relative_to(words[1])]
    return max(points)[1] in ("tmpfs", "ramfs", "overlay")


def test_dropped_files_leave_the_page_cache(tmp_path: Path) -> None:
    if _is_on_memory(tmp_path):
        pytest.skip("the temporary folder is in memory")
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "log"
    path.write_bytes(os.urandom(1 << 20))
    (tmp_path / "empty").touch()
    assert path.read_bytes()
    assert _page_cache.resident_share(tmp_path) > 0.9
    _page_cache.drop(tmp_path)
    assert _page_cache.resident_share(tmp_path) < 0.1


def test_an_empty_folder_has_nothing_in_it(tmp_path: Path) -> None:
    assert _page_cache.resident_share(tmp_path) == 0.0


def test_memory_is_touched_and_given_back() -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    touched = _page_cache.touch_memory(0.001)
    assert 0.0005 * free < touched < 0.002 * free
    assert touched % os.sysconf("SC_PAGE_SIZE") == 0
    assert _page_cache.touch_memory(0.0) == 0
