"""Dead letters: lists, selection, sending back with a preview, and the export."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kourou import Message
from kourou.console.api import dead_letters
from kourou.testing.cluster import Cluster
from tests.e2e.client.kit.push_kit import Notes, make_topic, until
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.admin.messages.test_redrive import (
    GROUP,
    OTHER,
    TOPIC,
    consumer,
    order,
    with_dead_letters,
)
from tests.integration.console.kit import Console, console_of

PATH = f"/dead-letters/{GROUP}"
REDRIVE = f"{PATH}/redrive"


@asynccontextmanager
async def with_console(
    folder: Path, *messages: Message, brokers: int = 1
) -> AsyncIterator[tuple[Cluster, Console]]:
    async with (
        with_dead_letters(folder / "cluster", *messages, brokers=brokers) as running,
        console_of(running.namesrv_addr, folder) as console,
    ):
        yield running, console


def position(letter: dict[str, Any]) -> str:
    return f"{letter['broker_name']}:{letter['queue_id']}:{letter['queue_offset']}"


async def test_lists(tmp_path: Path) -> None:
    orders = [order(number, colour="red" if number % 2 else "blue") for number in range(6)]
    async with with_console(tmp_path, *orders, brokers=2) as (running, console):
        (group,) = (await console.get("/dead-letters"))["items"]
        assert (group["group"], group["count"], group["problem"]) == (GROUP, 6, "")
        page = await console.get(PATH, limit=4)
        more = await console.get(PATH, limit=4, cursor=page["next"])
        letters = [*page["items"], *more["items"]]
        assert sorted(letter["keys"] for letter in letters) == [f"o{number}" for number in range(6)]
        assert more["next"] is None and more["is_complete"]
        assert {letter["topic"] for letter in letters} == {TOPIC}
        assert all(letter["reconsume_times"] >= 0 and letter["offset_msg_id"] for letter in letters)
        assert page["commands"] == [f"mqadmin redrive -n {running.namesrv_addr} -g billing --dry-run"]
        red = await console.get(PATH, expression="colour = 'red'", order="oldest")
        assert sorted(letter["keys"] for letter in red["items"]) == ["o1", "o3", "o5"]
        assert [letter["keys"] for letter in (await console.get(PATH, key="o2"))["items"]] == ["o2"]
        assert (await console.get(PATH, topic="Other"))["items"] == []
        last = max(letter["store_timestamp"] for letter in letters)
        assert (await console.get(PATH, begin=last + 1))["items"] == []
        # The page of one message.
        letter = letters[0]
        found = await console.get(f"/messages/%25DLQ%25{GROUP}/{position(letter)}")
        assert found["message"]["keys"] == letter["keys"]
        # A group without dead letters, and one that does not exist.
        assert (await console.get(f"/dead-letters/{OTHER}"))["items"] == []
        assert (await console.get("/dead-letters/none", status=404))["error"]["code"] == "not_found"
        bad = await console.get(PATH, status=400, expression="colour =")
        assert "SQL92" in bad["error"]["message"]


async def test_chosen_ones_go_back_with_a_preview_while_the_group_is_offline(tmp_path: Path) -> None:
    async with with_console(tmp_path, *(order(number) for number in range(4))) as (running, console):
        letters = (await console.get(PATH, order="oldest"))["items"]
        body = {"positions": [position(letters[1]), position(letters[2])]}
        preview = await console.preview("POST", REDRIVE, body)
        assert preview["effects"][0] == (
            "Sends 2 dead letters back to group billing, through %RETRY%billing, which only it reads"
        )
        assert {letters[1]["msg_id"], letters[2]["msg_id"]} == {
            effect.split()[1] for effect in preview["effects"][1:3]
        }
        assert preview["warnings"] == ["No client of group billing is online: the messages wait until one is"]
        assert preview["commands"] == [
            f"mqadmin redrive -n {running.namesrv_addr} -g billing -k {letter['msg_id']}"
            for letter in letters[1:3]
        ]
        done = await console.change("POST", REDRIVE, body, plan=preview["plan"])
        assert [(one["target"], one["is_done"]) for one in done["outcomes"]] == [
            (letters[1]["msg_id"], True),
            (letters[2]["msg_id"], True),
        ]
        assert {one["outcome"] for one in done["result"]} == {"sent"}
        notes = Notes()
        async with consumer(running, notes):
            await until(lambda: len(notes.messages) == 2)
        assert sorted(notes.bodies) == [b"order 1", b"order 2"]


async def test_another_administrator_was_faster(tmp_path: Path) -> None:
    async with with_console(tmp_path, order(1), order(2)) as (_, console):
        mine = await console.preview("POST", REDRIVE, {})
        letters = (await console.get(PATH, order="oldest"))["items"]
        await console.change("POST", REDRIVE, {"positions": [position(letters[0])]})
        refused = await console.change("POST", REDRIVE, {}, plan=mine["plan"], status=409)
        assert refused["error"]["code"] == "changed_meanwhile"
        assert "Skips 1 dead letter redriven before" in refused["preview"]["effects"]
        done = await console.change("POST", REDRIVE, {}, plan=refused["preview"]["plan"])
        assert [one["outcome"] for one in done["result"]] == ["redriven before", "sent"]
        nothing = await console.preview("POST", REDRIVE, {})
        assert nothing["effects"][0] == "Sends nothing back to group billing"


async def test_to_the_topic_and_a_limit(tmp_path: Path) -> None:
    async with with_console(tmp_path, order(1), order(2), order(3)) as (running, console):
        body = {"to_topic": True, "limit": 2}
        preview = await console.preview("POST", REDRIVE, body)
        assert preview["effects"][0] == (
            "Sends 2 dead letters of group billing to Orders: every group of the topic receives them"
        )
        assert preview["warnings"] == ["At most 2 are sent at a time; others may match, too"]
        assert preview["commands"] == [
            f"mqadmin redrive -n {running.namesrv_addr} -g billing --limit 2 --to-topic"
        ]
        notes, others = Notes(), Notes()
        async with consumer(running, notes), consumer(running, others, group=OTHER):
            await console.change("POST", REDRIVE, body)
            await until(lambda: len(notes.messages) == 2 and len(others.messages) == 2)


async def test_outcomes_are_those_of_each_message(tmp_path: Path) -> None:
    async with with_console(tmp_path, order(1)) as (running, console):
        await register_dead_broker(running, f"%RETRY%{GROUP}")
        # Whether it was redriven before is not known while a broker is away: it is not sent.
        preview = await console.preview("POST", REDRIVE, {})
        assert preview["effects"][0] == "Sends nothing back to group billing"
        assert (
            "1 dead letter cannot be sent: cannot determine whether it was redriven" in preview["warnings"][0]
        )
        done = await console.change("POST", REDRIVE, {}, status=502)
        (outcome,) = done["outcomes"]
        assert not outcome["is_done"] and "127.0.0.1:1" in outcome["problem"]


async def test_bad_positions_are_refused(tmp_path: Path) -> None:
    async with with_console(tmp_path, order(1)) as (_, console):
        for text in ("nonsense", "broker-x:0:0", "broker-a:9:0"):
            answer = await console.preview("POST", REDRIVE, {"positions": [text]}, status=400)
            assert answer["error"]["message"].startswith("positions: ")


def exported(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers["content-disposition"] == 'attachment; filename="dead-letters-billing.jsonl"'
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = Message(TOPIC, b"\x00\xff", keys=["binary"], properties={"<b>": "<script>"})
    async with with_console(tmp_path, order(1), order(2), binary) as (_, console):
        letters = (await console.get(PATH, order="oldest"))["items"]
        lines = exported(await console.http.get(f"/api{PATH}/export"))
        assert [line["msg_id"] for line in lines] == [letter["msg_id"] for letter in letters]
        (found,) = [line for line in lines if line["keys"] == "binary"]
        assert base64.b64decode(found["body"]) == b"\x00\xff"
        assert (found["origin_topic"], found["properties"]["<b>"]) == (TOPIC, "<script>")
        chosen = await console.http.get(f"/api{PATH}/export", params={"positions": position(letters[1])})
        assert [line["msg_id"] for line in exported(chosen)] == [letters[1]["msg_id"]]
        by_key = exported(await console.http.get(f"/api{PATH}/export", params={"key": "o2"}))
        assert [line["keys"] for line in by_key] == ["o2"]
        monkeypatch.setattr(dead_letters, "_MAX_EXPORTED", 2)
        *first, last = exported(await console.http.get(f"/api{PATH}/export"))
        assert len(first) == 2 and "at most 2 messages" in last["incomplete"]
        assert (await console.http.get("/api/dead-letters/none/export")).status_code == 404


async def test_no_group_has_dead_letters(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC)
    assert (await console.get("/dead-letters"))["items"] == []
