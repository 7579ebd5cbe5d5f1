"""What is typed and what is printed: times, tables, messages, lines of standard input."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from kourou.admin.messages.message_view import MessageView
from kourou.cli.daily.cluster_command import aligned
from kourou.cli.daily.standard_input import all_of, lines_of, stdin_chunks
from kourou.cli.daily.tail import message_json, message_line
from kourou.cli.daily.times import format_time, parse_time_ms
from kourou.errors import ConfigError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-10m", NOW_MS - 600_000),
        ("-1.5h", NOW_MS - 5_400_000),
        ("-30000d", 0),
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14 22:13", round(datetime(2023, 11, 14, 22, 13).timestamp() * 1000)),
        ("20231114", round(datetime(2023, 11, 14).timestamp() * 1000)),
    ],
)
def test_times_that_are_understood(text: str, expected: int) -> None:
    assert parse_time_ms("--from", text, NOW_MS) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-10", "-m", "--", "12:30", "-10m ago", "9999999999999999Z", "9" * 17, "9" * 25]
)
def test_times_that_are_not(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--from .*: must be "):
        parse_time_ms("--from", text, NOW_MS)


def test_a_time_in_seconds_is_refused() -> None:
    with pytest.raises(ConfigError, match="in milliseconds since 1970: 1794948102 looks like seconds"):
        parse_time_ms("--to", "1794948102", NOW_MS)


def test_a_time_that_is_shown_is_understood() -> None:
    assert parse_time_ms("--from", format_time(NOW_MS + 7)) == NOW_MS + 7
    assert format_time(0) == "-"


def test_a_table_is_as_wide_as_its_cells_and_numbers_are_right_aligned() -> None:
    head: list[str] = []
    rows = [["Orders", "8", "-", "-", "x"], ["A", "16", "120", "-", "yy"]]
    lines = list(aligned(("TOPIC", "N", "LAG", "ACL", "B"), rows, head.append))
    assert [*head, *lines] == [
        "TOPIC    N  LAG  ACL  B",
        "Orders   8    -  -    x",
        "A       16  120  -    yy",
    ]
    assert list(aligned(("A", "B"), [], head.append)) == [] and head[-1] == "A  B"


def view(body: bytes, **changes: object) -> MessageView:
    fields: dict[str, object] = {
        "topic": "Orders",
        "broker_name": "broker-a",
        "queue_id": 3,
        "queue_offset": 17,
        "phy_offset": 0,
        "store_size": 1,
        "msg_id": "ID",
        "offset_msg_id": "OFFSETID",
        "tags": None,
        "keys": None,
        "born_timestamp": 5,
        "born_host": "10.0.0.1:1",
        "store_timestamp": 0,
        "store_host": "",
        "sys_flag": 0,
        "flag": 0,
        "body_crc": 0,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "transaction_id": None,
        "properties": {},
        "body": body,
        **changes,
    }
    return MessageView(**fields)  # type: ignore[arg-type]


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    properties = {"color": "red", "UNIQ_KEY": "ID", "TAGS": "TagA", "KEYS": "k-1 k-2"}
    message = view("héllo\n\x1b[31m\r".encode(), tags="TagA", keys="k-1 k-2", properties=properties)
    assert message_line(message) == (
        "-  broker-a/3@17  tag=TagA  key=k-1  key=k-2  color=red  héllo\\n\\x1b[31m\\r"
    )
    assert message_line(view(b"\xff\x00")) == "-  broker-a/3@17  base64:/wA="


def test_a_body_that_is_no_text_is_marked_in_json() -> None:
    text = message_json(view("é\n".encode(), keys="a b", properties={"x": "1", "KEYS": "a b"}))
    assert (text["body"], text["body_encoding"]) == ("é\n", "utf-8")
    assert (text["keys"], text["properties"], text["tag"]) == (["a", "b"], {"x": "1"}, None)
    raw = message_json(view(b"\xff\x00"))
    assert (raw["body"], raw["body_encoding"], raw["keys"]) == ("/wA=", "base64", [])
    assert json.loads(json.dumps(raw)) == raw


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_lines_however_they_are_cut() -> None:
    whole = b"one\r\ntwo\n\nthree"
    for cut in range(len(whole) + 1):
        found = [line async for line in lines_of(chunks(whole[:cut], whole[cut:]))]
        assert found == [b"one", b"two", b"", b"three"], cut
    assert [line async for line in lines_of(chunks(b"end\n"))] == [b"end"]


async def test_standard_input_comes_as_it_is_written() -> None:
    reading, writing = os.pipe()
    lines = lines_of(stdin_chunks(reading))
    os.write(writing, b"first\n")
    assert await anext(lines) == b"first"
    later = asyncio.ensure_future(anext(lines))
    os.write(writing, b"second\n")
    assert await later == b"second"
    os.close(writing)
    assert await anext(lines, None) is None
    os.close(reading)


async def test_standard_input_that_cannot_be_read_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OSError):
        await all_of(stdin_chunks(reading))
    os.close(writing)
