"""`kourou store compare`, `backup` and `restore`: what they print, and how they end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kourou.cli.main import app
from tests.golden.stores import extract_store

END = 1109259


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return extract_store("4.9.7", tmp_path)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


def run_json(exit_code: int, *arguments: str | Path) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def changed(root: Path, position: int) -> Path:
    """A copy with one byte of the log changed."""
    copy = shutil.copytree(root, root.with_name("changed"))
    start = position - position % 262144
    path = copy / "commitlog" / f"{start:020d}"
    raw = bytearray(path.read_bytes())
    raw[position - start] ^= 1
    path.write_bytes(raw)
    return copy


# -- compare -------------------------------------------------------------------------------------


def test_equal_stores_end_with_0(root: Path) -> None:
    result = run("compare", root, root)
    assert result.exit_code == 0
    first, second, verdict, last = result.stdout.splitlines()
    assert first.startswith(f"A: {root} (stopped): CommitLog from 0 to {END}, last record 2026-")
    assert second == first.replace("A:", "B:", 1)
    assert verdict == f"The logs are equal from 0 to {END}."
    assert last.startswith("1.1 MB compared in ")


def test_the_longer_one_is_named(root: Path, tmp_path: Path) -> None:
    shorter = shutil.copytree(root, tmp_path / "shorter")
    last = sorted((shorter / "commitlog").iterdir())[-1]
    last.unlink()
    shutil.rmtree(shorter / "consumequeue")
    assert f"The logs are equal from 0 to {int(last.name)}; A is " in run("compare", root, shorter).stdout
    report = run_json(1, "compare", shorter, root)
    assert report["difference"] is None and report["common"]["maxOffset"] == int(last.name)
    assert report["queues"] and {queue["aEnd"] for queue in report["queues"]} == {None}


def test_different_records_end_with_1_and_a_table(root: Path) -> None:
    other = changed(root, 300_000)
    result = run("compare", root, other)
    assert result.exit_code == 1
    assert "(first byte: 300000):" in result.stdout
    rows = {
        cells[0]: cells[1:]
        for line in result.stdout.splitlines()
        if line.startswith("│")
        for cells in [[cell.strip() for cell in line.strip("│").split("│")]]
    }
    assert rows["topic"][0] == "BigTopic" and rows["topic"][1].startswith("no record: ")
    assert rows["offset"][0] == rows["offset"][1] and rows["size"][1] == "-"
    found = run_json(1, "compare", root, other)["difference"]
    assert found["firstByte"] == 300_000 and found["offset"] == int(rows["offset"][0])
    assert found["a"]["msgId"] == rows["message id"][0] and found["a"]["queueOffset"] >= 0
    assert set(found["b"]) == {"problem"}


def test_comparing_what_is_no_store(root: Path, tmp_path: Path) -> None:
    result = run("compare", root, tmp_path / "nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"kourou store compare: {tmp_path}/nothing: there is no such folder\n"
    assert run("compare", root).exit_code == 2


# -- backup and restore --------------------------------------------------------------------------


def test_there_and_back(root: Path, tmp_path: Path) -> None:
    result = run("backup", root, tmp_path / "backup")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"backup of {root} in {tmp_path}/backup: CommitLog from 0 to {END}, ")
    result = run("restore", tmp_path / "backup", tmp_path / "new")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        f"restored {tmp_path}/backup to {tmp_path}/new: CommitLog from 0 to {END}, "
    )
    assert run("check", tmp_path / "new").exit_code == 0
    assert run("compare", tmp_path / "backup", tmp_path / "new").exit_code == 0


def test_there_and_back_as_json(root: Path, tmp_path: Path) -> None:
    made = run_json(0, "backup", root, tmp_path / "backup", "--copy")
    assert made["commitLog"] == {"minOffset": 0, "maxOffset": END}
    assert (made["linkedLogFiles"], made["copiedLogFiles"]) == (0, 5)
    restored = run_json(0, "restore", tmp_path / "backup", tmp_path / "new", "--copy")
    assert restored["files"] == made["files"] and restored["store"] == str(root.resolve())


def test_problems_are_one_line_and_exit_code_2(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cut" / "store").mkdir(parents=True)
    for arguments, reason in (
        (("backup", tmp_path / "nothing", tmp_path / "b"), f"{tmp_path}/nothing: there is no such folder"),
        (("backup", root, root / "b"), f"{root}/b: it is part of the store; give a folder elsewhere"),
        (("backup", root, tmp_path / "b", "--base", root), f"{root}: not a backup: it has no backup.json"),
        (("restore", root, tmp_path / "b"), f"{root}: not a backup: it has no backup.json"),
        (("restore", tmp_path / "cut", tmp_path / "b"), f"{tmp_path}/cut: the backup is incomplete: "),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"kourou store {arguments[0]}: {reason}")
        assert result.stderr.count("\n") == 1
    assert not (tmp_path / "b").exists()
