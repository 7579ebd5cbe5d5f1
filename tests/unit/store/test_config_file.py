"""JsonConfigFile: whole content or the one before, whatever happens."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.errors import StoreFormatError
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import DelayOffsetTable, dump_table, load_table
from kourou.store.disk.files import Files
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from kourou.testing.survival import Survival, drop_all, keep_all

OLD, NEW = b'{"a":1}', b'{"a":{2:3}}'
SURVIVALS: list[int | Survival] = [drop_all, keep_all, *range(12)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "topics.json"


def backup_of(path: Path) -> Path:
    return path.with_name("topics.json.bak")


def test_the_first_store_makes_the_folder(path: Path) -> None:
    file = JsonConfigFile(Files(), path)
    assert file.load() is None
    file.store(OLD)
    file.store(NEW)
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (NEW, OLD)
    assert JsonConfigFile(Files(), path).load() == NEW
    assert sorted(each.name for each in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_content_is_loaded_as_a_table(path: Path) -> None:
    table = DelayOffsetTable(offset_table={1: 5, 18: 7})
    JsonConfigFile(Files(), path).store(dump_table(table))
    assert JsonConfigFile(Files(), path).load_as(lambda raw: load_table(raw, DelayOffsetTable)) == table


def given(path: Path, main: bytes | None, backup: bytes | None) -> JsonConfigFile:
    path.parent.mkdir()
    for each, content in ((path, main), (backup_of(path), backup)):
        if content is not None:
            each.write_bytes(content)
    return JsonConfigFile(Files(), path)


def test_a_missing_file_is_found_as_backup_without_ado(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = given(path, None, OLD)
    assert (file.load(), file.problem) == (OLD, None)
    assert not caplog.records


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"a":1', b'{"a":1}}', b"\xff\xff"])
def test_a_damaged_file_is_replaced_by_its_backup_and_reported(
    path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = given(path, damage, OLD)
    with caplog.at_level(logging.WARNING):
        assert file.load() == OLD
    assert file.problem is not None and file.problem.startswith(("damaged (", "empty"))
    assert str(path) in caplog.text and str(backup_of(path)) in caplog.text
    assert path.read_bytes() == damage


@pytest.mark.parametrize("load_first", [True, False])
def test_a_damaged_file_never_becomes_the_backup(path: Path, load_first: bool) -> None:
    file = given(path, b"{", OLD)
    if load_first:
        assert file.load() == OLD
    file.store(NEW)
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (NEW, OLD)


def test_after_damage_and_a_store_backups_are_kept_again(path: Path) -> None:
    file = given(path, b"{", OLD)
    file.load()
    file.store(NEW)
    file.store(OLD)
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (OLD, NEW)


@pytest.mark.parametrize(
    ("main", "backup"), [(b"{", None), (b"{", b""), (None, b"{"), (b"", b"{"), (b"{", b"[")]
)
def test_when_nothing_can_be_read_nothing_is_forgotten(
    path: Path, main: bytes | None, backup: bytes | None
) -> None:
    file = given(path, main, backup)
    with pytest.raises(StoreFormatError, match="topics.json: damaged .*; repair it, or remove it") as refused:
        file.load()
    assert refused.value.path == path


@pytest.mark.parametrize(("main", "backup"), [(None, None), (b"", None), (b"", b""), (None, b"\0\0")])
def test_empty_files_hold_nothing(path: Path, main: bytes | None, backup: bytes | None) -> None:
    assert given(path, main, backup).load() is None


def test_a_disk_that_cannot_be_read_is_no_damage(path: Path) -> None:
    given(path, OLD, OLD)
    files = FaultyFiles()
    files.fail("pread")
    with pytest.raises(OSError, match="Input/output error"):
        JsonConfigFile(files, path).load()


def changes_of(work: Callable[[FaultyFiles], object]) -> int:
    files = FaultyFiles()
    work(files)
    return files.changes


@pytest.mark.parametrize("damaged_main", [False, True])
def test_whenever_the_power_goes_old_or_new_is_loaded(tmp_path: Path, damaged_main: bool) -> None:
    def prepare(name: str) -> Path:
        path = tmp_path / name / "topics.json"
        path.parent.mkdir()
        path.write_bytes(b"{" if damaged_main else OLD)
        backup_of(path).write_bytes(OLD if damaged_main else b'{"older":0}')
        return path

    def work(files: FaultyFiles, path: Path) -> None:
        file = JsonConfigFile(files, path)
        file.load()
        file.store(NEW)

    steps = changes_of(lambda files: work(files, prepare("count")))
    found = set()
    for at in range(1, steps + 1):
        for number, survival in enumerate(SURVIVALS):
            files, path = FaultyFiles(), prepare(f"{at}-{number}")
            files.crash_at(at)
            with pytest.raises(SimulatedCrash):
                work(files, path)
            files.crash(survival)
            found.add(JsonConfigFile(files, path).load())
    assert steps >= 6
    assert found == {OLD, NEW}


def test_what_was_stored_survives(path: Path) -> None:
    for seed in range(20):
        files = FaultyFiles()
        JsonConfigFile(files, path).store(NEW)
        files.sync_folder(path.parents[2])
        files.crash(seed)
        assert JsonConfigFile(files, path).load() == NEW
        files.remove_tree(path.parent)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_whichever_call_fails_old_or_new_is_loaded(tmp_path: Path, error: int) -> None:
    steps = changes_of(lambda files: JsonConfigFile(files, tmp_path / "count").store(NEW))
    for nth in range(1, steps + 3):
        path = tmp_path / f"{nth}.json"
        JsonConfigFile(Files(), path).store(OLD)
        files = FaultyFiles()
        files.fail({"create", "pwrite", "sync", "set_length", "rename", "sync_folder"}, nth, error=error)
        file = JsonConfigFile(files, path)
        try:
            file.store(NEW)
        except OSError:
            assert JsonConfigFile(Files(), path).load() in (OLD, NEW)
            file.store(NEW)
        assert JsonConfigFile(Files(), path).load() == NEW


def test_the_folder_of_a_store_that_was_moved_away_is_not_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    file = JsonConfigFile(Files(), root / "config" / "topics.json")
    file.store(b"{}")
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="was moved or removed"):
        file.store(b"{}")
    assert not root.exists()
