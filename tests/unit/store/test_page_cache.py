"""Whether pages are in memory, asked of the system about real files."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from pathlib import Path

import pytest

from kourou.store import page_cache
from kourou.store.files import Files
from kourou.store.page_cache import MappedPages

SIZE = 64 * mmap.PAGESIZE


def pages_of(path: Path) -> MappedPages:
    with Files().open(path) as file:
        return MappedPages(memoryview(file.map_readonly(SIZE)))


def test_what_was_just_written_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    pages = pages_of(path)
    assert pages.are_resident(0, SIZE)
    assert pages.are_resident(10, 11) and pages.are_resident(SIZE - 1, SIZE)


def test_what_lies_outside_is_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    pages = pages_of(path)
    assert not any(pages.are_resident(*range_) for range_ in ((-1, 5), (5, 5), (9, 4), (0, SIZE + 1)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops pages when it is asked to")
def test_what_the_system_has_dropped_is_not_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        with contextlib.suppress(OSError):  # the file system cannot tell: it is one in memory
            os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
            pytest.skip("this file system keeps its pages")
    finally:
        os.close(descriptor)
    assert not pages_of(path).are_resident(0, SIZE)


def test_where_the_system_cannot_tell_nothing_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    monkeypatch.setattr(page_cache, "_mincore", None)
    assert not pages_of(path).are_resident(0, SIZE)
