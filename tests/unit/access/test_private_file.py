"""Files with secrets: their mode, their replacement, what is not read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from kourou.access.private_file import PrivateFile
from kourou.errors import ConfigError


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def file(tmp_path: Path) -> PrivateFile:
    return PrivateFile(tmp_path / "config" / "users.json")


def test_replaced_with_backup_readable_by_the_owner_only(file: PrivateFile) -> None:
    old_mask = os.umask(0)
    try:
        file.write(b"one")
        file.write(b"two")
    finally:
        os.umask(old_mask)
    assert (file.read(), file.backup_path.read_bytes()) == (b"two", b"one")
    assert mode_of(file.path) == mode_of(file.backup_path) == 0o600
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["users.json", "users.json.bak"]


def test_nothing_there(file: PrivateFile) -> None:
    assert file.read() is None


def test_missing_file_with_backup_is_not_ignored(file: PrivateFile) -> None:
    file.write(b"one")
    file.path.rename(file.backup_path)
    with pytest.raises(ConfigError, match=r"users\.json is missing, but users\.json\.bak is there"):
        file.read()


def test_readable_file_is_closed_to_others(file: PrivateFile, caplog: pytest.LogCaptureFixture) -> None:
    file.write(b"one")
    file.path.chmod(0o644)
    assert file.read() == b"one"
    assert mode_of(file.path) == 0o600
    assert "mode 644" in caplog.text


def test_folder_in_its_place_cannot_be_read(file: PrivateFile) -> None:
    file.path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        file.read()


def test_left_over_temporary_file_with_a_wide_mode_is_not_used(file: PrivateFile) -> None:
    file.path.parent.mkdir()
    left_over = file.path.with_name("users.json.tmp")
    left_over.write_bytes(b"x" * 100)
    left_over.chmod(0o666)
    file.write(b"one")
    assert file.read() == b"one" and mode_of(file.path) == 0o600


def test_backup_of_a_file_that_others_could_read_is_closed_to_them(file: PrivateFile) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(b"by a user")
    file.path.chmod(0o644)
    file.write(b"one")
    assert file.backup_path.read_bytes() == b"by a user" and mode_of(file.backup_path) == 0o600


def test_backup_is_a_copy_where_files_have_one_name_only(
    file: PrivateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "no hard links here", str(source))

    monkeypatch.setattr(os, "link", refused)
    file.write(b"one")
    file.write(b"two")
    assert (file.read(), file.backup_path.read_bytes()) == (b"two", b"one")
    assert mode_of(file.backup_path) == 0o600
