"""Which backups are restored, and what is left when one is not."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import StorageError, StoreFormatError
from kourou.store.backup.backup import BackupOptions, back_up
from kourou.store.backup.restore import STAGING_NAME, restore
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from tests.unit.store.message_stores import NOW_MS, StoreKit, put

FIRST = "commitlog/00000000000000000000"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a store with several files."""
    with StoreKit(tmp_path / "store", Files()) as kit:
        store = kit.open()
        for number in range(60):
            put(store, b"%d" % number * 20)
        store.flush()
        store.flush_derived(thorough=True)
        back_up(Files(), kit.root, tmp_path / "backup", BackupOptions(), lambda: NOW_MS)
    return tmp_path / "backup"


def edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def run(backup: Path) -> None:
        manifest = json.loads((backup / "backup.json").read_text())
        change(manifest)
        (backup / "backup.json").write_text(json.dumps(manifest))

    return run


def flip_a_byte(backup: Path) -> None:
    path = backup / "store" / FIRST
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "damage, reason",
    [
        (lambda backup: (backup / "backup.json").unlink(), "the backup is incomplete: it has no backup.json"),
        (lambda backup: (backup / "backup.json").write_bytes(b"{\xff"), "backup.json: damaged: "),
        (lambda backup: (backup / "backup.json").write_text('{"version":1}'), "backup.json: damaged: "),
        (
            edit(lambda manifest: manifest.update(version=2)),
            "its version is 2, this program restores version 1",
        ),
        (edit(lambda manifest: manifest["files"][0].update(path="../x")), "damaged: the entry '../x'"),
        (edit(lambda manifest: manifest["files"][0].update(path="/etc/x")), "damaged: the entry '/etc/x'"),
        (edit(lambda manifest: manifest["files"][0].update(sizeBytes=-1)), "damaged: the entry "),
        (lambda backup: (backup / "store" / FIRST).unlink(), f"{FIRST}: missing from the backup"),
        (
            lambda backup: os.truncate(backup / "store" / FIRST, 100),
            f"{FIRST}: it has 100 bytes, 4096 in the",
        ),
        (flip_a_byte, f"{FIRST}: damaged: its CRC-32 is "),
    ],
)
@pytest.mark.parametrize("copies_only", [False, True])
def test_a_backup_that_is_not_whole_is_refused(
    damage: Callable[[Path], None], reason: str, copies_only: bool, backup: Path, tmp_path: Path
) -> None:
    damage(backup)
    target = tmp_path / "restored"
    with pytest.raises(StorageError) as refused:
        restore(Files(), backup, target, copies_only=copies_only)
    assert reason in str(refused.value) and "\n" not in str(refused.value)
    assert not target.exists() or os.listdir(target) == []


def test_targets_that_are_refused(backup: Path, tmp_path: Path) -> None:
    full, remains, file = tmp_path / "full", tmp_path / "remains", tmp_path / "file"
    (full / "commitlog").mkdir(parents=True)
    (remains / STAGING_NAME).mkdir(parents=True)
    file.touch()
    for target, reason in (
        (full, "not empty: it has commitlog"),
        (remains, "not empty: remains of an interrupted restore"),
        (file, "it is a file"),
    ):
        with pytest.raises(StoreFormatError, match=reason):
            restore(Files(), backup, target)
    for folder, reason in ((tmp_path / "nothing", "there is no such folder"), (full, "not a backup")):
        with pytest.raises(StoreFormatError, match=reason):
            restore(Files(), folder, tmp_path / "restored")


class Interrupted(BaseException):
    """The end of a process."""


class Dying(Files):
    """Ends the process at the n-th rename; nothing is cleaned up then."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def rename(self, source: Path, target: Path) -> None:
        if not self._left:
            raise Interrupted
        self._left -= 1
        super().rename(source, target)


def test_a_restore_that_is_interrupted_is_never_taken_for_a_store(backup: Path, tmp_path: Path) -> None:
    names = len(os.listdir(backup / "store"))
    for nth in range(names):
        target = tmp_path / f"restored-{nth}"
        with pytest.raises(Interrupted):
            restore(Dying(nth), backup, target)
        kit = StoreKit(target, Files())
        with pytest.raises(StoreFormatError):
            MessageStore.open(kit.config(), Files(), kit.clock)
        with pytest.raises(StoreFormatError, match="remains of an interrupted restore"):
            restore(Files(), backup, target)
    restore(Dying(names), backup, tmp_path / "whole")


def test_an_empty_folder_is_used_and_a_full_disk_leaves_it_empty(backup: Path, tmp_path: Path) -> None:
    class Full(Files):
        def set_modified(self, path: Path, modified_ns: int) -> None:
            if path.name == "consumequeue.snapshot":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    target = tmp_path / "mounted"
    target.mkdir()
    inode = target.stat().st_ino
    with pytest.raises(OSError, match="No space left"):
        restore(Full(), backup, target)
    assert os.listdir(target) == []
    restore(Files(), backup, target)
    assert target.stat().st_ino == inode and STAGING_NAME not in os.listdir(target)
