"""`kourou store inspect FILE`: what was cut off a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kourou.cli.main import app
from kourou.store.replica.orphaned_tail import SavedTail
from tests.unit.store.message_stores import put
from tests.unit.store.replica.cut_kit import cut, new_kit, set_epochs


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", "inspect", *map(str, arguments)])


def run_json(*arguments: str | Path) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def saved(tmp_path: Path) -> SavedTail:
    with new_kit(tmp_path / "store") as kit:
        store = kit.open()
        put(store, b"kept")
        end = store.log.max_phy_offset
        put(store, b"an order", properties="KEYS\x01order-1\x02TAGS\x01paid\x02")
        put(store, b"\xff\x00", "refunds", 3)
        put(store, b"x" * 100, queue_id=1)
        store.close()
        set_epochs(kit.root, 0, end)
        found = cut(kit, end)
    assert found is not None
    return found


def test_the_table_says_from_where_to_where_and_lists_the_messages(saved: SavedTail) -> None:
    result = run(saved.path)
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first.startswith(f"{saved.path}: cut off the CommitLog of broker-a at 2023-11-14")
    span = f"from {saved.start_phy_offset} to {saved.end_phy_offset} ({saved.size_bytes} bytes)"
    assert first.endswith(f", {span}, epoch 2: 3 messages")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in rest if "│" in line]
    assert [row[1] for row in rows] == ["orders", "refunds", "orders"]
    assert rows[0][3:7] == ["paid", "order-1", "an order", "0"]
    assert rows[1][5:8] == ["ff00", "3", "0"]
    assert rows[2][5] == "x" * 40 + "…"


def test_messages_as_json_in_the_form_of_a_store(saved: SavedTail) -> None:
    found = run_json(saved.path)
    messages = found.pop("messages")
    assert found == {
        "file": str(saved.path),
        "brokerSet": "broker-a",
        "epoch": 2,
        "startOffset": saved.start_phy_offset,
        "endOffset": saved.end_phy_offset,
        "savedTimestamp": saved.saved_ms,
        "problem": None,
        "messageCount": 3,
        "selectedCount": 3,
    }
    assert [message.get("body") for message in messages] == ["an order", None, "x" * 100]
    assert messages[1]["bodyHex"] == "ff00" and messages[0]["properties"]["KEYS"] == "order-1"


def test_topic_queue_and_limit_select(saved: SavedTail) -> None:
    found = run_json(saved.path, "--topic", "orders", "--queue", "1")
    assert [message["body"] for message in found["messages"]] == ["x" * 100]
    assert (found["messageCount"], found["selectedCount"]) == (3, 1)
    assert run(saved.path, "--limit", "1").stdout.splitlines()[-1].startswith("2 more; --limit sets")


def test_one_message(saved: SavedTail) -> None:
    (message, *_) = run_json(saved.path)["messages"]
    for text in (str(message["commitLogOffset"]), message["msgId"], message["offsetMsgId"].lower()):
        assert run_json(saved.path, "--message", text) == message
    assert "an order" in run(saved.path, "--message", message["msgId"]).stdout
    result = run(saved.path, "--message", "7")
    assert result.exit_code == 2
    assert result.stderr == f"kourou store inspect: {saved.path}: there is no message at or with id 7\n"


def test_a_damaged_tail_shows_what_is_left_and_ends_with_2(saved: SavedTail) -> None:
    raw = bytearray(saved.path.read_bytes())
    raw[saved.head_bytes + 90] ^= 1
    saved.path.write_bytes(raw)
    result = run(saved.path)
    assert result.exit_code == 2
    assert "damaged: the checksum of its records is wrong" in result.stdout
    assert "2 messages" in result.stdout and "refunds" in result.stdout
    saved.path.write_bytes(raw[:-3])
    assert "were saved" in run(saved.path).stdout


def test_another_file_and_options_of_stores_are_refused(saved: SavedTail, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(200))
    result = run(other)
    assert result.exit_code == 2
    assert result.stderr == (
        f"kourou store inspect: {other}: not a saved tail of a CommitLog: its first bytes are others\n"
    )
    result = run(saved.path, "--record", "5")
    assert result.exit_code == 2 and "--record is for stores" in result.stderr
