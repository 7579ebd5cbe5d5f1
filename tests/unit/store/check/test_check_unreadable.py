"""Files that cannot be read: one line each, and the rest is checked."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.store.check.check import check_store
from kourou.store.check.invariants import Invariant
from kourou.store.disk.files import Files, OpenFile
from tests.golden.stores import extract_store, manifest

VERSION = "4.9.7"


class Unreadable(Files):
    """Files of which one is on a bad part of the disk."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open(
        self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
    ) -> OpenFile:
        if str(path).endswith(self._name):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return super().open(path, writable=writable, create=create, exclusive=exclusive)


@pytest.mark.parametrize(
    "name",
    [
        "commitlog/00000000000000524288",
        "consumequeue/BulkTopic/0/00000000000000000000",
        "consumequeue/BulkTopic/0/00000000000000006000",
        "index/20261115030244307",
        "checkpoint",
        "config/topics.json",
    ],
)
def test_an_unreadable_file_is_named_once(name: str, tmp_path: Path) -> None:
    root = extract_store(VERSION, tmp_path)
    report = check_store(Unreadable(name), root)
    assert [found.text(root) for found in report.unreadable] == [
        f"{name}: cannot be read: Input/output error"
    ]
    assert [found.invariant for found in report.violations] == [Invariant.READABLE]
    assert not report.ok


def test_an_unreadable_log_file_hides_its_records_only(tmp_path: Path) -> None:
    report = check_store(Unreadable("commitlog/00000000000000524288"), extract_store(VERSION, tmp_path))
    hidden = [m for m in manifest(VERSION)["messages"] if m["commitLogOffset"] // 262_144 == 2]
    assert report.counts.records == manifest(VERSION)["counts"]["messages"] - len(hidden)


def test_a_file_that_goes_while_a_broker_is_at_work_is_a_note(tmp_path: Path) -> None:
    class Removing(Files):
        """Retention removes the first file of the log once the check has listed it."""

        def open(
            self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
        ) -> OpenFile:
            if path.name == "00000000000000000000" and path.parent.name == "commitlog":
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            return super().open(path, writable=writable, create=create, exclusive=exclusive)

    root = extract_store(VERSION, tmp_path)
    with Files().lock(root / "lock"):
        report = check_store(Removing(), root)
    assert report.ok and report.in_use
    assert "it was removed while the check went on" in {found.what for found in report.notes}
