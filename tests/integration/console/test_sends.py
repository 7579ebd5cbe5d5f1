"""Test messages sent by the console: bodies, properties, delays, transactions, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.admin.messages.messages import find_message
from kourou.console.api.sends import MAX_ARGUMENT_BYTES
from kourou.protocol.message import MessageExt
from tests.integration.console.kit import Console


async def _sent(console: Console, topic: str, body: dict[str, Any]) -> MessageExt:
    done = await console.change("POST", f"/topics/{topic}/messages", body)
    return await find_message(console.context.sessions.own.admin, done["result"]["msg_id"], topic)


@pytest.mark.parametrize(
    ("encoding", "body", "stored"),
    [
        ("text", "grüß €", "grüß €".encode()),
        ("json", '{"n": 12345678901234567890}', b'{"n": 12345678901234567890}'),
        ("hex", "00 ff\n10", b"\x00\xff\x10"),
        ("base64", "AP8Q", b"\x00\xff\x10"),
    ],
)
async def test_the_body_arrives(console: Console, encoding: str, body: str, stored: bytes) -> None:
    await console.change("POST", "/topics", {"topic": "Orders"})
    sent = await _sent(
        console,
        "Orders",
        {"body": body, "encoding": encoding, "tag": "A", "keys": ["k1", "k2"], "properties": {"shop": "7"}},
    )
    assert (sent.body, sent.tags, tuple(sent.keys), sent.properties["shop"]) == (
        stored,
        "A",
        ("k1", "k2"),
        "7",
    )


async def test_commands_do_the_same(console: Console) -> None:
    await console.change("POST", "/topics", {"topic": "Orders"})
    preview = await console.preview("POST", "/topics/Orders/messages", {"body": "it's", "tag": "A"})
    assert preview["effects"] == ["Sends a message of 4 bytes to topic Orders"]
    assert preview["commands"][0].endswith("""-t Orders -p 'it'"'"'s' -c A""")
    body = {"body": "x", "delay_ms": 1500, "properties": {"a": "b"}}
    preview = await console.preview("POST", "/topics/Orders/messages", body)
    assert preview["commands"][0].startswith("kourou send Orders x ")
    assert preview["commands"][0].endswith("-p a=b --delay 1500ms")


async def test_a_body_too_large_for_an_argument_has_no_command(console: Console) -> None:
    await console.change("POST", "/topics", {"topic": "Orders"})
    body = {"body": "é" * (MAX_ARGUMENT_BYTES // 2)}
    assert (await console.preview("POST", "/topics/Orders/messages", body))["commands"]
    body = {"body": "é" * (MAX_ARGUMENT_BYTES // 2 + 1)}
    assert (await console.preview("POST", "/topics/Orders/messages", body))["commands"] == []


async def test_a_message_to_a_transaction_topic_is_committed(console: Console) -> None:
    await console.change("POST", "/topics", {"topic": "Payments", "kind": "TRANSACTION"})
    preview = await console.preview("POST", "/topics/Payments/messages", {"body": "paid"})
    assert preview["effects"] == ["Sends a message of 4 bytes to topic Payments in a transaction"]
    sent = await _sent(console, "Payments", {"body": "paid"})
    assert (sent.topic, sent.body) == ("Payments", b"paid")


async def test_the_audit_log_has_no_bodies(console: Console) -> None:
    await console.change("POST", "/topics", {"topic": "Orders"})
    await console.change("POST", "/topics/Orders/messages", {"body": "secret text"})
    record = (await console.get("/audit"))["items"][0]
    assert record["operation"] == "post_topics_topic_messages"
    assert "secret text" not in str(record)


async def test_what_cannot_be_sent_is_refused(console: Console) -> None:
    await console.change("POST", "/topics", {"topic": "Orders"})
    for body, reason in (
        ({"body": "{", "encoding": "json"}, "body: not json"),
        ({"body": "[" * 100_000, "encoding": "json"}, "body: not json"),
        ({"body": "0g", "encoding": "hex"}, "body: not hex"),
        ({"body": "?", "encoding": "base64"}, "body: not base64"),
        ({"body": "x", "tag": "A||B"}, "one tag"),
        ({"body": "x", "delay_level": 99}, "delay_level"),
        ({"body": "x", "delay_ms": 10**12}, "delay_ms"),
        ({"body": "x" * (5 * 1024 * 1024)}, "body: topic 'Orders': the body has 5242880 bytes"),
        ({"body": ""}, "body: topic 'Orders': the body is empty"),
        ({"body": "x", "properties": {"KEYS": "k"}}, "KEYS"),
    ):
        answer = await console.change("POST", "/topics/Orders/messages", body, status=400)
        assert reason in answer["error"]["message"], answer
    await console.change("POST", "/topics/None/messages", {"body": "x"}, status=404)
    answer = await console.change("POST", "/topics/SCHEDULE_TOPIC_XXXX/messages", {"body": "x"}, status=400)
    assert "written by brokers only" in answer["error"]["message"]
    await console.change("PUT", "/topics/Orders", {"perm": 4})
    answer = await console.change("POST", "/topics/Orders/messages", {"body": "x"}, status=404)
    assert "no write permission" in answer["error"]["message"]
