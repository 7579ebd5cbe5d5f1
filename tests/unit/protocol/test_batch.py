"""The batch body: bytes by hand, what may not be a batch, and damage."""

from __future__ import annotations

import struct

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.batch import (
    BatchEntry,
    batch_problem,
    encode_batch,
    encode_batch_entries,
    has_half,
    split_batch,
)
from kourou.protocol.message import Message


def entry(flag: int, body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    return (
        struct.pack(">iiiii", size, 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )


def test_a_batch_is_its_entries_one_after_the_other() -> None:
    messages = [
        Message("T", b"one", tags="TagA", flag=5),
        Message("T", b"", properties={"颜色": "红"}),
    ]
    expected = entry(5, b"one", b"TAGS\x01TagA\x02") + entry(0, b"", "颜色\x01红\x02".encode())
    assert encode_batch(messages) == expected
    assert split_batch(expected) == [
        BatchEntry(5, b"one", b"TAGS\x01TagA\x02"),
        BatchEntry(0, b"", "颜色\x01红\x02".encode()),
    ]


def test_an_empty_body_has_no_entries() -> None:
    assert split_batch(b"") == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "at least one message"),
        ([Message("A", b"x"), Message("B", b"x")], "this one has 'A' and 'B'"),
        ([Message("A", b"x"), Message("A", b"x", wait_store_msg_ok=False)], "wait for the store, or none"),
        ([Message("A", b"x", delay_time_level=1)], "no delayed messages"),
        ([Message("A", b"x", deliver_time_ms=10**12)], "no delayed messages"),
        ([Message("%RETRY%g", b"x")], "is a retry topic"),
    ],
)
def test_what_cannot_be_one_batch(messages: list[Message], problem: str) -> None:
    assert problem in (batch_problem(messages) or "")
    with pytest.raises(ValueError, match=problem):
        encode_batch(messages)


def test_properties_that_are_too_long() -> None:
    assert len(encode_batch_entries([BatchEntry(0, b"", bytes(32767))])) == 22 + 32767
    with pytest.raises(ValueError, match="properties of 32768 bytes do not fit: 32767 are allowed"):
        encode_batch_entries([BatchEntry(0, b"", bytes(32768))])


GOOD = entry(0, b"body", b"a\x01b\x02")


@pytest.mark.parametrize(
    "tail",
    [
        b"\x00",
        GOOD[:-1],
        GOOD[:20],
        bytes(22),  # size 0
        struct.pack(">iiiii", 22, 0, 0, 0, -1) + bytes(2),
        struct.pack(">iiiii", 22, 0, 0, 0, 1 << 30) + bytes(2),
        struct.pack(">iiiii", 21, 0, 0, 0, 0) + struct.pack(">h", -1),
        struct.pack(">iiiii", 30, 0, 0, 0, 0) + bytes(10),
    ],
)
def test_damage_is_named_with_its_place(tail: bytes) -> None:
    with pytest.raises(ProtocolError, match="no batch entry at byte 30 of the batch body"):
        split_batch(GOOD + tail)


def test_the_mark_of_a_half_counts_in_properties_only() -> None:
    mark = b"TRAN_MSG\x01true\x02"
    assert not has_half(
        [BatchEntry(0, mark, b"me\x01mine\x02"), BatchEntry(0, b"", b"TRAN_MSG\x01false\x02")]
    )
    assert not has_half([BatchEntry(0, b"", b"NO_" + mark)])
    assert has_half([BatchEntry(0, b"", b""), BatchEntry(0, b"", b"me\x01mine\x02" + mark)])
