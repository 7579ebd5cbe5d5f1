"""DescriptorCache: few open files, none closed under a reader."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.queue.descriptor_cache import CachedFile, DescriptorCache
from kourou.testing.faulty_files import FaultyFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abcdef":
        (tmp_path / name).write_text(name)
    return tmp_path


def take(cache: DescriptorCache, folder: Path, name: str) -> CachedFile:
    return cache.take(name, lambda: folder / name)


def is_open(entry: CachedFile) -> bool:
    try:
        return bool(entry.file.pread(1, 0))
    except OSError:
        return False


def test_a_file_is_opened_once(folder: Path) -> None:
    cache = DescriptorCache(Files(), 2)
    assert cache.take_nowait("a") is None
    first = take(cache, folder, "a")
    cache.give_back(first)
    assert take(cache, folder, "a") is first
    assert cache.take_nowait("a") is first
    assert len(cache) == 1


def test_the_one_not_used_for_longest_is_closed(folder: Path) -> None:
    cache = DescriptorCache(Files(), 2)
    entries = {name: take(cache, folder, name) for name in "ab"}
    for entry in entries.values():
        cache.give_back(entry)
    cache.give_back(take(cache, folder, "a"))
    cache.give_back(take(cache, folder, "c"))
    assert is_open(entries["a"])
    assert not is_open(entries["b"])
    assert len(cache) == 2


def test_a_file_in_use_is_closed_by_its_last_user(folder: Path) -> None:
    cache = DescriptorCache(Files(), 1)
    entry = take(cache, folder, "a")
    assert take(cache, folder, "a") is entry
    cache.give_back(take(cache, folder, "b"))
    cache.give_back(entry)
    assert entry.file.pread(1, 0) == b"a"
    cache.give_back(entry)
    assert not is_open(entry)


def test_a_forgotten_name_is_opened_anew(folder: Path) -> None:
    cache = DescriptorCache(Files(), 2)
    cache.give_back(take(cache, folder, "a"))
    (folder / "a").unlink()
    (folder / "a").write_text("new")
    cache.forget("a")
    cache.forget("never seen")
    assert take(cache, folder, "a").file.pread(3, 0) == b"new"


def test_a_file_opened_while_its_name_was_forgotten_is_not_kept(folder: Path) -> None:
    cache = DescriptorCache(Files(), 2)

    def path_of_a_file_about_to_go() -> Path:
        cache.forget("a")
        return folder / "a"

    entry = cache.take("a", path_of_a_file_about_to_go)
    assert entry.file.pread(1, 0) == b"a"
    assert len(cache) == 0
    cache.give_back(entry)
    assert not is_open(entry)


def test_when_the_process_has_no_descriptor_left_half_are_given_up(folder: Path) -> None:
    files = FaultyFiles()
    cache = DescriptorCache(files, 10)
    for name in "abcd":
        cache.give_back(take(cache, folder, name))
    files.fail("open", error=errno.EMFILE)
    assert take(cache, folder, "e").file.pread(1, 0) == b"e"
    assert len(cache) == 3


def test_other_failures_are_the_callers(folder: Path) -> None:
    cache = DescriptorCache(Files(), 10)
    with pytest.raises(FileNotFoundError):
        take(cache, folder, "nothing")
    assert len(cache) == 0


def test_close_closes_what_is_unused(folder: Path) -> None:
    cache = DescriptorCache(Files(), 10)
    used, idle = take(cache, folder, "a"), take(cache, folder, "b")
    cache.give_back(idle)
    cache.close()
    assert is_open(used)
    assert not is_open(idle)
    cache.give_back(used)
    assert not is_open(used)
