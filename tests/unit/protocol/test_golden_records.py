"""Every record of three stores written by Apache RocketMQ decodes to the recorded values.

`records-V.log.gz` are the CommitLog's bytes up to its end, `records-V.jsonl.gz` first a line
about the log, then what each record holds. 4.9.7 stands for two stores: the one after
`kill -9` begins with every byte of the one after a clean stop. The frames are those of
the wire tests: pull and query answers and batch requests of the same brokers.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.batch import encode_batch_entries, split_batch
from kourou.protocol.compression import CompressionType, compress
from kourou.protocol.layout import BLANK_MAGIC_CODE
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import parse_offset_msg_id, parse_unique_id
from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC
from kourou.protocol.properties import encode_properties, get_property, properties_from_bytes
from kourou.protocol.record import (
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    has_property_crc,
)
from kourou.protocol.record_fields import record_mark, record_positions
from kourou.protocol.tags import tags_code

GOLDEN = Path(__file__).parents[2] / "golden"
VERSIONS = ("4.9.7", "5.5.0")
PULL, QUERY, VIEW, POP = 11, 12, 33, 200050
SEND_BATCH = 320


@dataclass(frozen=True)
class Recording:
    """One CommitLog and what Apache said that it holds."""

    log: bytes
    about: dict[str, Any]
    expected: list[dict[str, Any]]

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Position, size and magic of every record and blank."""
        pos = 0
        while pos < len(self.log):
            size, magic = record_mark(self.log, pos)
            yield pos, size, magic
            pos += size


@cache
def recording(version: str) -> Recording:
    log = gzip.decompress((GOLDEN / f"records-{version}.log.gz").read_bytes())
    lines = gzip.decompress((GOLDEN / f"records-{version}.jsonl.gz").read_bytes()).decode().splitlines()
    about, *expected = map(json.loads, lines)
    return Recording(log, about, expected)


@cache
def messages(version: str) -> list[MessageExt]:
    golden = recording(version)
    return [
        decode_record(golden.log, pos, verify_body_crc=True)
        for pos, _, magic in golden.records()
        if magic != BLANK_MAGIC_CODE
    ]


def pairs(version: str) -> Iterator[tuple[MessageExt, dict[str, Any]]]:
    return zip(messages(version), recording(version).expected, strict=True)


def in_manifest_words(message: MessageExt) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "commitLogOffset": message.phy_offset,
        "storeSize": message.store_size,
        "bodyLength": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "bodyCRC": message.body_crc,
        "tags": message.tags,
        "keys": message.get_property("KEYS"),
        "properties": message.properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }


@pytest.mark.parametrize(("version", "count"), [("4.9.7", 2502), ("5.5.0", 2336)])
def test_every_record_decodes_to_the_recorded_values(version: str, count: int) -> None:
    assert recording(version).about["messages"] == count
    for message, expected in pairs(version):
        got = in_manifest_words(message)
        assert got == {name: expected[name] for name in got}
        assert len(message.stored_body) == expected.get("storedBodyLength", expected["bodyLength"])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_encodes_to_the_same_bytes(version: str) -> None:
    golden = recording(version)
    for message in messages(version):
        end = message.phy_offset + message.store_size
        assert encode_record(message) == golden.log[message.phy_offset : end]


@pytest.mark.parametrize("version", VERSIONS)
def test_blank_records_are_where_they_were_recorded(version: str) -> None:
    golden = recording(version)
    blanks = [(pos, size) for pos, size, magic in golden.records() if magic == BLANK_MAGIC_CODE]
    assert blanks == [(blank["offset"], blank["size"]) for blank in golden.about["blankRecords"]]
    for pos, size in blanks:
        assert golden.log[pos : pos + 8] == encode_blank(size)


@pytest.mark.parametrize(("version", "count"), [("4.9.7", 2442), ("5.5.0", 2336)])
def test_tags_codes_are_those_in_the_consume_queue(version: str, count: int) -> None:
    # Records that had not reached their queue before the crash have no code recorded.
    dispatched = [pair for pair in pairs(version) if "tagsCode" in pair[1]]
    assert len(dispatched) == count
    for message, expected in dispatched:
        if message.topic == RMQ_SYS_SCHEDULE_TOPIC:
            # The slot holds the delivery time instead.
            assert expected["tagsCode"] > message.store_timestamp
        else:
            assert tags_code(message.tags) == expected["tagsCode"]


@pytest.mark.parametrize("version", VERSIONS)
def test_ids_are_taken_apart(version: str) -> None:
    clients_ids = 0
    for message in messages(version):
        found = parse_offset_msg_id(message.offset_msg_id)
        assert (found.address, found.phy_offset) == (message.store_host, message.phy_offset)
        unique = message.get_property("UNIQ_KEY") or ""
        # POP's own records and hand-made requests have ids of other forms.
        if len(unique) == 32:
            made_ms = parse_unique_id(unique).nearest_time_ms(message.born_timestamp + 60_000, UTC)
            assert abs(made_ms - message.born_timestamp) < 2000
            clients_ids += 1
    assert clients_ids > 2200


@pytest.mark.parametrize("version", VERSIONS)
def test_property_strings_survive_and_can_be_searched(version: str) -> None:
    for message in messages(version):
        text = properties_from_bytes(message.raw_properties)
        for name in ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "CLUSTER", "DELAY"):
            assert get_property(text, name) == message.get_property(name)
        if text.count("\x01") == len(message.properties):
            assert encode_properties(message.properties, trailing_separator=version != "4.9.7") == text
        assert not has_property_crc(encode_record(message))


def test_compressed_bodies_were_written_with_level_5() -> None:
    compressed = [message for message in messages("5.5.0") if message.sys_flag & 1]
    assert [message.sys_flag for message in compressed] == [CompressionType.ZLIB.sys_flag] * 4
    for message in compressed:
        assert compress(message.body) == message.stored_body


@cache
def frames(version: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / f"frames-{version}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def body_of(frame: dict[str, Any]) -> bytes:
    raw = base64.b64decode(frame["frame"])
    return raw[len(raw) - frame["bodyLength"] :]


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_answers_that_carry_records(version: str) -> None:
    answers = [
        frame
        for frame in frames(version)
        if frame["type"] == "response"
        and frame.get("requestCode") in (PULL, QUERY, VIEW, POP)
        and frame["code"] == 0
        and frame["bodyLength"]
    ]
    assert len(answers) > 100
    for body in map(body_of, answers):
        positions = record_positions(body)
        found = decode_records(body)
        assert [message.store_size for message in found] == [
            after - before for before, after in zip(positions, positions[1:], strict=False)
        ]
        assert b"".join(map(encode_record, found)) == body


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_batch_requests(version: str) -> None:
    batches = [f for f in frames(version) if f["type"] == "request" and f["code"] == SEND_BATCH]
    assert len(batches) > 40
    for frame in batches:
        entries = split_batch(body_of(frame))
        assert encode_batch_entries(entries) == body_of(frame)
        assert all(get_property(properties_from_bytes(entry.raw_properties), "UNIQ_KEY") for entry in entries)
