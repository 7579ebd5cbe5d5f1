"""Properties files: read with a reason when they cannot be, replaced whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kourou.config.properties_file import read_properties, read_text, replace_file, update_file
from kourou.errors import ConfigError


def test_a_missing_file_says_which_and_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read: No such file"):
        read_properties(tmp_path / "none.conf")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_properties(tmp_path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    path.write_bytes(b"x" * (1 << 20) + b"y")
    with pytest.raises(ConfigError, match="not a configuration file"):
        read_properties(path)


@pytest.mark.parametrize(
    "raw", ["a=ü".encode(), "a=ü".encode("latin-1"), "\ufeffa=ü".encode()], ids=["utf-8", "latin-1", "bom"]
)
def test_text_in_the_usual_encodings(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "a.conf"
    path.write_bytes(raw)
    assert read_text(path) == "a=ü"


def test_update_keeps_comments_and_the_text_before_it(tmp_path: Path) -> None:
    path = tmp_path / "ns.conf"
    path.write_text("# mine\nlistenPort=1\n")
    update_file(path, {"listenPort": "2"})
    assert path.read_text() == "# mine\nlistenPort=2\n"
    assert (tmp_path / "ns.conf.bak").read_text() == "# mine\nlistenPort=1\n"


def test_update_makes_the_file_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "namesrv.properties"
    update_file(path, {"a": "1"})
    assert path.read_text() == "a=1\n"
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["namesrv.properties"]


def test_a_new_file_is_private_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    replace_file(tmp_path / "new", "x")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    old = tmp_path / "old"
    old.write_text("y")
    old.chmod(0o640)
    replace_file(old, "z")
    assert old.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.conf", tmp_path / "link.conf"
    target.write_text("a=1\n")
    link.symlink_to(target)
    update_file(link, {"a": "2"})
    assert link.is_symlink() and target.read_text() == "a=2\n"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "ns.conf"
    path.write_text("a=1\n")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ConfigError, match="cannot be written: No space left"):
        replace_file(path, "a=2\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["ns.conf"]
    assert path.read_text() == "a=1\n"
