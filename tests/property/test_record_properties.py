"""The property string found by lengths is the one that decoding finds, and damage is never more than None."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.layout import MESSAGE_MAGIC_CODE, Buffer
from kourou.protocol.properties import PropertyFinder, decode_properties, properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import properties_start, record_mark
from tests.property.test_records import records

GOLDEN = Path(__file__).parents[1] / "golden"


def record_properties(buffer: Buffer, pos: int, size_bytes: int) -> str | None:
    """The property string of a record, if there is one."""
    start = properties_start(buffer, pos, size_bytes)
    return None if start < 0 else properties_from_bytes(bytes(buffer[start : pos + size_bytes]))


@given(records(), st.binary(max_size=50), st.binary(max_size=50))
def test_the_string_is_that_of_the_whole_record(raw: bytes, before: bytes, behind: bytes) -> None:
    expected = properties_from_bytes(decode_record(raw).raw_properties)
    buffer = memoryview(before + raw + behind)
    assert record_properties(buffer, len(before), len(raw)) == expected


@given(records(), st.data())
def test_what_is_no_record_has_no_properties(raw: bytes, data: st.DataObject) -> None:
    broken = bytearray(raw)
    for position in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        broken[position] = data.draw(st.integers(0, 255))
    broken = broken[: data.draw(st.integers(0, len(raw)))]
    try:
        expected = properties_from_bytes(decode_record(broken).raw_properties)
    except ProtocolError:
        expected = None
    found = record_properties(broken, 0, len(broken))
    assert found == expected or (expected is None and isinstance(found, str))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_records_of_apache(version: str) -> None:
    log = gzip.decompress((GOLDEN / f"records-{version}.log.gz").read_bytes())
    pos = count = 0
    while pos + 8 <= len(log):
        size, magic = record_mark(log, pos)
        if magic != MESSAGE_MAGIC_CODE:
            break
        expected = properties_from_bytes(decode_record(log, pos).raw_properties)
        assert record_properties(log, pos, size) == expected
        assert record_properties(log, pos, size + 1) is None
        pos, count = pos + size, count + 1
    assert count > 50


NAMES = ("a", "b", "TAGS", "ab", "$x")
PIECES = st.sampled_from(
    [*NAMES, "\x01", "\x02", "\x01\x02", "=", "\x02a\x01", "ä", "\x02a\x01v\x02", "中\x02b\x01中\x02"]
)


@given(st.lists(PIECES).map("".join), st.binary(max_size=5), st.binary(max_size=5))
def test_values_are_those_of_the_dictionary(text: str, before: bytes, behind: bytes) -> None:
    raw = text.encode()
    buffer = memoryview(before + raw + behind)
    for names in (NAMES, NAMES * 3):
        found = PropertyFinder(names).values(buffer, len(before), len(before) + len(raw))
        assert found == [decode_properties(text).get(name) for name in names]


@given(st.binary())
def test_values_of_any_bytes_are_those_of_the_dictionary(raw: bytes) -> None:
    stored = b"b\x01" + raw + b"\x02a\x01" + raw
    properties = decode_properties(properties_from_bytes(stored))
    assert PropertyFinder(["a", "b"]).values(stored, 0, len(stored)) == [
        properties.get("a"),
        properties.get("b"),
    ]
