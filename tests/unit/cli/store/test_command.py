"""`kourou store check` and `kourou store inspect`: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kourou.cli.main import app
from kourou.cli.printing import shown
from kourou.cli.store import check as store_check
from kourou.cli.store.progress import progress_bar
from kourou.store.disk.files import Files, OpenFile
from tests.golden.stores import extract_store, manifest
from tests.unit.store.broken_stores import contents, flip

VERSION = "4.9.7"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return extract_store(VERSION, tmp_path)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


def run_json(*arguments: str | Path) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# -- check ---------------------------------------------------------------------------------------


def test_a_sound_store_ends_with_0_and_the_rate(root: Path) -> None:
    result = run("check", root)
    assert result.exit_code == 0
    first, *_, last = result.stdout.splitlines()
    assert first.startswith(
        f"{root} (stopped): 2,293 records in 5 CommitLog files, from 0 to 1109259; 2,293 "
    )
    assert last.startswith("OK: 1.1 MB of records in ") and last.endswith(" MB/s")


def test_a_damaged_store_ends_with_1_and_a_table(root: Path) -> None:
    flip("commitlog/00000000000000262144", 100)(root)
    result = run("check", root)
    assert result.exit_code == 1
    (row,) = [line for line in result.stdout.splitlines() if "commitlog/00000000000000262144" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")][:2] == ["commitlog/00000000000000262144", "0"]
    assert "the body does not match its CRC" in row
    assert result.stdout.splitlines()[-1].startswith("1 violation: ")


def test_a_killed_store_ends_with_0_and_says_what_comes(tmp_path: Path) -> None:
    result = run("check", extract_store("4.9.7-crash", tmp_path))
    assert result.exit_code == 0
    assert "At the next start" in result.stdout and "dispatch 60 records from 1143049 on" in result.stdout


def test_the_report_as_json(root: Path) -> None:
    report = run_json("check", root)
    assert report["ok"] is True and report["cleanExit"] is True and report["inUse"] is False
    assert report["commitLog"] == {"minOffset": 0, "maxOffset": 1109259}
    assert report["counts"]["records"] == 2293 and report["counts"]["logFiles"] == 5
    assert report["violations"] == report["recovery"] == report["notes"] == []
    assert set(report["scan"]) == {"seconds", "bytesPerSecond"}


def test_violations_as_json(root: Path) -> None:
    flip("consumequeue/BulkTopic/0/00000000000000000000", 47)(root)
    result = run("check", root, "--json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["violations"]
    assert found.pop("what").startswith("unit 2 points at ")
    assert found == {
        "file": "consumequeue/BulkTopic/0/00000000000000000000",
        "position": 40,
        "invariant": "QUEUE_UNIT",
    }


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_no_store_is_one_line_and_exit_code_2(command: str, tmp_path: Path) -> None:
    for folder, reason in (
        (tmp_path / "nothing", "there is no such folder"),
        (tmp_path, "not a store: it has no folder `commitlog`"),
    ):
        result = run(command, folder)
        assert result.exit_code == 2 and result.stdout == ""
        assert result.stderr == f"kourou store {command}: {folder}: {reason}\n"


def test_the_folder_that_standalone_prints_is_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "standalone"
    (folder / "broker-a" / "config").mkdir(parents=True)
    (folder / "broker-a" / "checkpoint").write_bytes(b"")  # nothing was sent yet: there is no commitlog
    (folder / "logs").mkdir()
    result = run("check", folder)
    assert result.stdout.startswith(f"{folder}/broker-a (stopped): 0 records in 0 CommitLog files")
    last = result.stdout.splitlines()[-1]
    assert ": 0 bytes of records in " in last and last.endswith(" s"), "no rate of so little"
    assert run_json("inspect", folder)["root"] == f"{folder}/broker-a"
    extract_store(VERSION, tmp_path).rename(folder / "broker-b")
    result = run("check", folder)
    assert f"{folder}/broker-b (stopped): 2,293 records" in result.stdout
    assert [report["root"] for report in json.loads(run("check", folder, "--json").stdout)] == [
        f"{folder}/broker-a",
        f"{folder}/broker-b",
    ]
    refused = run("inspect", folder)
    assert (refused.exit_code, refused.stderr) == (
        2,
        f"kourou store inspect: {folder}: contains several stores; choose one of them: "
        f"{folder}/broker-a, {folder}/broker-b\n",
    )


def test_an_unreadable_file_ends_with_2(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreadable(Files):
        def open(
            self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
        ) -> OpenFile:
            if path.name == "00000000000000262144":
                raise PermissionError(13, "Permission denied", str(path))
            return super().open(path, writable=writable, create=create, exclusive=exclusive)

    monkeypatch.setattr(store_check, "Files", Unreadable)
    result = run("check", root)
    assert result.exit_code == 2 and "cannot be read: Permission denied" in result.stdout


def test_delay_levels_and_slots_may_be_given(root: Path) -> None:
    assert run("check", root, "--index-slots", "1000").exit_code == 0
    assert run("check", root, "--delay-levels", "1s 2s 3s").exit_code == 1
    result = run("check", root, "--delay-levels", "1x")
    assert result.exit_code == 2 and "'1x' is not a delay" in result.stderr


def test_a_commit_log_elsewhere_is_given(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "log"
    (root / "commitlog").rename(elsewhere)
    assert run("check", root, "--commit-log", elsewhere).exit_code == 0
    assert run_json("inspect", root, "--commit-log", elsewhere)["commitLog"]["maxOffset"] == 1109259


def test_a_commit_log_in_several_folders_is_given_as_apache_has_it(root: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "log-1", tmp_path / "log-2"]
    for folder in folders:
        folder.mkdir()
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        path.rename(folders[number % 2] / path.name)
    (root / "commitlog").rmdir()
    both = f"{folders[0]}, {folders[1]}"
    for options in (
        ["--commit-log", both],
        [word for folder in folders for word in ("--commit-log", folder)],
    ):
        assert run("check", root, *options).exit_code == 0
        assert run_json("inspect", root, *options)["commitLog"]["maxOffset"] == 1109259
    assert run("check", root, "--commit-log", folders[0]).exit_code == 1


def test_progress_is_shown_on_a_terminal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress_bar("check") as on_progress:
        assert on_progress is not None
        on_progress(1, 2)


# -- inspect -------------------------------------------------------------------------------------


def test_the_overview_as_json(root: Path) -> None:
    found = run_json("inspect", root)
    known = manifest(VERSION)
    assert found["commitLog"]["maxOffset"] == known["commitLog"]["maxOffset"]
    assert len(found["queues"]) == len(known["consumeQueues"])
    assert found["topics"]["BulkTopic"] == {"queues": 4, "messages": 1760}
    assert {
        "group": "CG_bulk",
        "topic": "BulkTopic",
        "queueId": 0,
        "offset": 440,
        "lag": 0,
    } in found["groups"]
    assert found["checkpoint"]["physicMsgTimestamp"] == known["checkpoint"]["physicMsgTimestamp"]
    assert found["index"][0]["indexCount"] == 4000


def test_the_overview_as_tables(root: Path) -> None:
    before = contents(root)
    result = run("inspect", root)
    assert result.exit_code == 0 and contents(root) == before
    for text in (
        "CommitLog, files of 262144 bytes",
        "Index",
        "Topics",
        "ConsumeQueues, files of 6000 bytes",
        "Groups",
    ):
        assert text in result.stdout
    assert "stored from 2026-11-15 03:02:44.287Z to 2026-11-15 03:06:13.110Z" in result.stdout


def test_one_topic_and_one_queue_id(root: Path) -> None:
    assert set(run_json("inspect", root, "--topic", "TagTopic")["topics"]) == {"TagTopic"}
    queues = run_json("inspect", root, "--queue", "3")["queues"]
    assert {queue["queueId"] for queue in queues} == {3}
    result = run("inspect", root, "--topic", "nothing")
    assert result.exit_code == 2 and result.stderr.endswith("no queue of topic nothing\n")


def test_the_messages_of_a_queue(root: Path) -> None:
    arguments = ("inspect", root, "--topic", "BulkTopic", "--queue", "1", "--from", "100", "--limit", "3")
    assert [message["queueOffset"] for message in run_json(*arguments)] == [100, 101, 102]
    assert run(*arguments).stdout.count("BulkTopic/1") == 1


@pytest.mark.parametrize("of", ["commitLogOffset", "msgId", "offsetMsgId"])
def test_one_message(of: str, root: Path) -> None:
    known = manifest(VERSION)["messages"][40]
    found = run_json("inspect", root, "--message", str(known[of]))
    for name in (
        "topic",
        "queueId",
        "queueOffset",
        "msgId",
        "offsetMsgId",
        "properties",
        "bodyLength",
        "bornHost",
    ):
        assert found[name] == known[name]
    table = run("inspect", root, "--message", str(known[of]))
    assert table.exit_code == 0 and known["offsetMsgId"] in table.stdout


def test_every_message_can_be_shown(root: Path) -> None:
    """Bodies of all kinds: text, bytes, compressed, none."""
    for known in manifest(VERSION)["messages"][::151]:
        found = run_json("inspect", root, "--message", str(known["commitLogOffset"]))
        assert found["bodyLength"] == known["bodyLength"]
        assert run("inspect", root, "--message", str(known["commitLogOffset"])).exit_code == 0


def test_a_message_that_is_not_there(root: Path) -> None:
    result = run("inspect", root, "--message", "5")
    assert result.exit_code == 2
    assert result.stderr == f"kourou store inspect: {root}: no message at 5: its magic is 0x0ff98800\n"


def test_a_record_with_its_bytes(root: Path) -> None:
    lines = run("inspect", root, "--record", "0", "--hex").stdout.splitlines()
    (magic,) = [line for line in lines if "magic" in line]
    assert [cell.strip() for cell in magic.strip("│").split("│")] == [
        "4 magic",
        "da a3 20 a7",
        ".. .",
        "0xdaa320a7 message, V1",
    ]
    assert any("UNIQ_KEY=" in line for line in lines)
    plain = run("inspect", root, "--record", "0").stdout
    assert "da a3 20 a7" not in plain and "0xdaa320a7" in plain


def test_a_record_as_json(root: Path) -> None:
    fields = run_json("inspect", root, "--record", "0", "--hex")
    assert fields[1] == {
        "field": "magic",
        "position": 4,
        "hex": "daa320a7",
        "value": "0xdaa320a7 message, V1",
    }


def test_a_record_where_there_is_none(root: Path) -> None:
    assert "not that of a record" in run("inspect", root, "--record", "1").stdout
    result = run("inspect", root, "--record", "99999999")
    assert result.exit_code == 2 and result.stderr.endswith("the log has no byte 99999999\n")


def test_hex_wants_a_record(root: Path) -> None:
    result = run("inspect", root, "--hex")
    assert result.exit_code == 2 and "--record" in result.stderr


# -- text from outside ---------------------------------------------------------------------------


def test_text_from_outside_stays_text() -> None:
    assert shown("[red]x[/]") == "\\[red]x\\[/]"
    assert shown("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert shown("標籤 é") == "標籤 é"
    assert shown("\udc80") == "\\udc80"
