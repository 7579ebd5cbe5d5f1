"""Files and OpenFile on a real disk."""

from __future__ import annotations

import array
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.store.disk.files import DiskUsage, Files, OpenFile
from kourou.store.disk.page_cache import FilePages
from tests.memory_folder import disk_tmp_path  # noqa: F401 (these files are on disk)

BLOCK_BYTES = 4096


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def file(files: Files, tmp_path: Path) -> Any:
    with files.open(tmp_path / "data", create=True) as file:
        yield file


def test_what_is_written_is_read(file: OpenFile) -> None:
    file.pwrite(b"world", 6)
    file.pwrite(bytearray(b"hello"), 0)
    file.pwrite(memoryview(b"??, ")[2:], 5)
    assert file.pread(11, 0) == b"hello, orld"
    assert file.length() == 11


def test_reads_end_with_the_file(file: OpenFile) -> None:
    file.pwrite(b"abc", 0)
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 3) == b""


def test_a_view_of_large_items_is_written_whole(file: OpenFile) -> None:
    numbers = array.array("q", range(100))
    file.pwrite(memoryview(numbers), 0)
    assert file.pread(1000, 0) == numbers.tobytes()


def test_more_parts_than_the_system_takes_at_once(file: OpenFile) -> None:
    parts = [str(number).encode() for number in range(5000)]
    file.pwritev(parts, 3)
    assert file.pread(1 << 20, 3) == b"".join(parts)


def test_no_parts_and_empty_parts_write_nothing(file: OpenFile) -> None:
    file.pwritev([], 0)
    file.pwritev([b"", b""], 7)
    file.pwrite(b"", 7)
    assert file.length() == 0


class StingyFile(OpenFile):
    """Takes at most three bytes at a time, and none beyond its room."""

    room_bytes = 1 << 30

    def _write_once(self, _: int, data: Any, position: int) -> int:
        some = memoryview(data).tobytes()[: min(3, max(0, self.room_bytes - position))]
        return os.pwrite(self._fd, some, position) if some else 0

    def _writev_once(self, parts: Any, position: int) -> int:
        return self._write_once(self._fd, b"".join(parts), position)


@pytest.fixture
def stingy(tmp_path: Path) -> Any:
    with StingyFile(tmp_path / "stingy", os.open(tmp_path / "stingy", os.O_RDWR | os.O_CREAT)) as file:
        yield file


def test_short_writes_are_continued(stingy: StingyFile) -> None:
    stingy.pwrite(array.array("i", range(20)), 0)
    stingy.pwritev([b"one", b"", b"two and", b" three"], 80)
    assert stingy.pread(100, 0) == array.array("i", range(20)).tobytes() + b"onetwo and three"


def test_a_write_that_gets_nowhere_is_a_full_disk(stingy: StingyFile) -> None:
    stingy.room_bytes = 5
    with pytest.raises(OSError, match="No space left on device") as full:
        stingy.pwrite(b"12345678", 0)
    assert full.value.errno == errno.ENOSPC
    assert full.value.filename == str(stingy.path)
    assert stingy.pread(10, 0) == b"12345"


def test_short_reads_are_continued(file: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.pwrite(b"0123456789", 0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 4), position))
    assert file.pread(9, 0) == b"012345678"
    assert file.pread(20, 2) == b"23456789"


def test_reading_without_waiting_gives_all_or_nothing(file: OpenFile) -> None:
    file.pwrite(bytes(range(256)), 0)
    assert file.pread_nowait(100, 10) == bytes(range(10, 110))
    assert file.pread_nowait(1000, 0) is None


def test_what_is_not_in_the_page_cache_is_none(file: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "preadv", _refusing(errno.EAGAIN))
    assert file.pread_nowait(10, 0) is None


def test_on_a_file_system_without_rwf_nowait_what_is_in_memory_is_read_at_once(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.pwrite(bytes(range(256)), 0)
    tries: list[object] = []
    monkeypatch.setattr(os, "preadv", _refusing(errno.EOPNOTSUPP, tries))
    assert [file.pread_nowait(100, position) for position in (10, 20)] == [
        bytes(range(10, 110)),
        bytes(range(20, 120)),
    ]
    assert file.pread_nowait(1000, 0) is None
    assert len(tries) == 1, "the file system is asked once for each open file"
    monkeypatch.setattr(FilePages, "are_resident", lambda *_: False)
    assert file.pread_nowait(100, 10) is None


def test_on_a_file_system_without_rwf_nowait_a_file_cut_short_is_read_as_none(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.pwrite(bytes(4 * BLOCK_BYTES), 0)
    monkeypatch.setattr(os, "preadv", _refusing(errno.EOPNOTSUPP))
    assert file.pread_nowait(BLOCK_BYTES, 3 * BLOCK_BYTES) == bytes(BLOCK_BYTES)
    file.set_length(3 * BLOCK_BYTES + 10)
    assert file.pread_nowait(BLOCK_BYTES, 3 * BLOCK_BYTES) is None
    file.set_length(10)
    assert file.pread_nowait(BLOCK_BYTES, 3 * BLOCK_BYTES) is None
    assert file.pread_nowait(10, 0) == bytes(10)


def _refusing(code: int, tries: list[object] | None = None) -> Callable[..., int]:
    def refuse(*asked: object) -> int:
        if tries is not None:
            tries.append(asked)
        raise OSError(code, os.strerror(code))

    return refuse


def test_a_read_error_is_no_cache_miss(file: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "preadv", _refusing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        file.pread_nowait(10, 0)


def test_what_will_be_needed_is_a_hint_and_changes_nothing(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.pwrite(b"there", 0)
    file.will_need(1 << 20, 0)
    monkeypatch.setattr("kourou.store.disk.files._ADVISE", None)
    file.will_need(1 << 20, 0)
    assert file.pread(10, 0) == b"there"


def test_a_map_shows_later_writes_and_outlives_the_file(file: OpenFile) -> None:
    file.set_length(BLOCK_BYTES)
    view = file.map_readonly(BLOCK_BYTES)
    file.pwrite(b"later", 100)
    file.close()
    assert view[100:105] == b"later"
    with pytest.raises(TypeError):
        view[0] = 1
    view.close()


def test_preallocating_takes_room_and_never_shrinks(file: OpenFile, tmp_path: Path) -> None:
    file.pwrite(b"head", 0)
    file.preallocate(1 << 20)
    assert file.length() == 1 << 20
    assert file.pread(8, 0) == b"head\0\0\0\0"
    assert os.stat(file.path).st_blocks * 512 >= 1 << 20
    file.preallocate(10)
    assert file.length() == 1 << 20


def test_where_room_cannot_be_reserved_the_length_is_set(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file.preallocate(100)
    file.preallocate(10)
    assert file.length() == 100


def test_preallocating_on_a_full_disk_gives_back_what_it_got(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reserve_some(fd: int, start: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file.pwrite(b"head", 0)
    monkeypatch.setattr(os, "posix_fallocate", reserve_some)
    with pytest.raises(OSError, match="No space left"):
        file.preallocate(1 << 20)
    assert file.length() == 4


def test_data_end_sees_holes(file: OpenFile) -> None:
    assert file.data_end() == 0
    file.set_length(100 * BLOCK_BYTES)
    file.pwrite(b"x" * 10, 0)
    file.pwrite(b"x" * 10, 8 * BLOCK_BYTES)
    if file.data_end() == 100 * BLOCK_BYTES:
        pytest.skip("this file system does not tell its holes")
    assert file.data_end() == 9 * BLOCK_BYTES
    assert file.data_end(8 * BLOCK_BYTES + 5) == 9 * BLOCK_BYTES
    assert file.data_end(50 * BLOCK_BYTES) == 50 * BLOCK_BYTES
    assert file.data_end(500 * BLOCK_BYTES) == 500 * BLOCK_BYTES


def test_data_end_sees_reserved_room_as_a_hole(file: OpenFile) -> None:
    file.preallocate(100 * BLOCK_BYTES)
    file.pwrite(b"x", 0)
    assert file.data_end() in (BLOCK_BYTES, 100 * BLOCK_BYTES)


def test_where_holes_cannot_be_seen_data_end_is_the_length(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "not here")

    file.set_length(12345)
    monkeypatch.setattr(os, "lseek", refuse)
    assert file.data_end() == 12345
    assert file.data_end(20000) == 20000


def test_sync_and_second_close(file: OpenFile) -> None:
    file.pwrite(b"x", 0)
    file.sync()
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_opening_what_is_not_there(files: Files, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(tmp_path / "none")
    with files.open(tmp_path / "some", exclusive=True) as file:
        file.pwrite(b"x", 0)
    with pytest.raises(FileExistsError):
        files.open(tmp_path / "some", exclusive=True)
    with files.open(tmp_path / "some", create=True) as file:
        assert file.length() == 1


def test_a_file_opened_for_reading_refuses_writes(files: Files, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"abc")
    with files.open(tmp_path / "data", writable=False) as file, pytest.raises(OSError, match="Bad file"):
        file.pwrite(b"x", 0)


def test_folders(files: Files, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    assert files.list_names(deep) == []
    files.make_folder(deep)
    files.make_folder(deep)
    for name in ("2", "10", "1"):
        files.open(deep / name, create=True).close()
    assert files.list_names(deep) == ["1", "10", "2"]
    assert files.is_folder(deep) and not files.is_folder(deep / "1")
    assert files.exists(deep / "1") and not files.exists(deep / "3")
    files.sync_folder(deep)


def test_a_file_in_the_place_of_a_folder_is_an_error(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError):
        files.make_folder(tmp_path / "a" / "b")
    with pytest.raises(OSError):
        files.make_folder(tmp_path / "a")


def test_remove_and_rename(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    files.rename(tmp_path / "a", tmp_path / "b")
    assert files.read(tmp_path / "b") == b"a"
    files.remove(tmp_path / "b")
    assert files.list_names(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        files.remove(tmp_path / "b")


def test_a_tree_is_removed_but_not_what_links_lead_to(files: Files, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_bytes(b"")
    files.make_folder(tmp_path / "tree" / "inner")
    (tmp_path / "tree" / "inner" / "file").write_bytes(b"")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    files.remove_tree(tmp_path / "tree")
    files.remove_tree(tmp_path / "tree")
    assert files.list_names(tmp_path) == ["outside"]
    assert files.list_names(tmp_path / "outside") == ["kept"]


def test_length_and_time_of_change(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.utime(tmp_path / "a", ns=(0, 1_700_000_000_123_999_999))
    assert files.length(tmp_path / "a") == 3
    assert files.modified_ms(tmp_path / "a") == 1_700_000_000_123


def test_replace_keeps_the_old_file_as_backup(files: Files, tmp_path: Path) -> None:
    path, backup = tmp_path / "a.json", tmp_path / "a.json.bak"
    (tmp_path / "a.json.tmp").write_bytes(b"left behind by somebody who died while writing it")
    files.replace(path, b"one", backup=backup)
    assert (files.read(path), files.exists(backup)) == (b"one", False)
    files.replace(path, b"two", backup=backup)
    files.replace(path, b"three")
    assert (files.read(path), files.read(backup)) == (b"three", b"one")
    assert files.list_names(tmp_path) == ["a.json", "a.json.bak"]


@pytest.mark.parametrize(
    ("total", "free", "usable", "ratio"),
    [(100, 40, 30, 0.67), (100, 100, 100, 0.0), (100, 0, 0, 1.0), (1000, 999, 999, 0.01), (0, 0, 0, 0.0)],
)
def test_used_ratio_is_rounded_up_and_leaves_out_what_only_root_may_use(
    total: int, free: int, usable: int, ratio: float
) -> None:
    assert DiskUsage(total, free, usable).used_ratio == ratio


def test_disk_usage_of_a_folder_to_come(files: Files, tmp_path: Path) -> None:
    usage = files.disk_usage(tmp_path / "not" / "yet")
    assert usage.total_bytes == files.disk_usage(tmp_path).total_bytes > 0
    assert 0 < usage.used_ratio <= 1
