"""One sync for everything: what it promises, and where it is not to be had."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kourou.store.disk import file_system_sync
from kourou.store.disk.files import Files


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.1.0-18-amd64", (6, 1)), ("5.8", (5, 8)), ("4.18.0-553.el8.x86_64", (4, 18)), ("strange", (0, 0))],
)
def test_the_version_of_a_kernel(release: str, version: tuple[int, int]) -> None:
    assert file_system_sync._kernel_version(release) == version


@pytest.mark.parametrize("release", ["5.7.19", "4.18.0-553.el8.x86_64", "strange"])
def test_a_kernel_that_hides_errors_is_not_asked(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.release", lambda: release)
    assert file_system_sync._find_syncfs() is None


def test_the_real_one_says_whether_it_was_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"something")
    assert Files().sync_all(tmp_path) is (file_system_sync._syncfs is not None)


def test_a_failure_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_system_sync, "_syncfs", lambda fd: -1)
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        Files().sync_all(tmp_path)


def test_where_there_is_none_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_system_sync, "_syncfs", None)
    assert Files().sync_all(tmp_path) is False
