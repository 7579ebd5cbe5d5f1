"""Whether pages are in memory, asked of the system about real files."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

from kourou.store.disk import page_cache
from kourou.store.disk.page_cache import FilePages, MappedPages
from tests.memory_folder import disk_tmp_path  # noqa: F401 (these files are on disk)

SIZE = 64 * mmap.PAGESIZE


def pages_of(path: Path) -> FilePages:
    with path.open("rb") as file:
        return FilePages(file.fileno(), SIZE)


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
    with path.open("rb") as file:
        os.fsync(file)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        except OSError:
            pytest.skip("this file system does not know RWF_NOWAIT: it may keep its pages")
        else:
            pytest.skip("the pages were kept")
    assert not pages_of(path).are_resident(0, SIZE)


def test_pages_that_were_given_back_are_not_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    pages = pages_of(path)
    pages.close()
    pages.close()
    assert not pages.are_resident(0, SIZE)


def test_where_the_system_cannot_tell_nothing_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    monkeypatch.setattr(page_cache, "_calls", None)
    assert not pages_of(path).are_resident(0, SIZE)


def test_a_map_in_use_answers_as_one_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * SIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_READ) as mapped:
        with memoryview(mapped) as view:
            pages = MappedPages.of(view)
            assert pages.are_resident(0, SIZE) and pages.are_resident(SIZE - 1, SIZE)
            assert not pages.are_resident(0, SIZE + 1)
