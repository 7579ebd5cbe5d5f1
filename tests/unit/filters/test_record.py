"""What filters see of a message."""

from __future__ import annotations

import pytest

from kourou.errors import ProtocolError
from kourou.filters import FilterRecord
from kourou.protocol.compression import CompressionType
from tests.unit.filters.records import raw_record, record


def test_body_and_properties_are_found_in_the_record() -> None:
    found = record(b"a body", b"TAGS\x01x\x02KEYS\x01k1 k2\x02n\x017\x02")
    assert bytes(found.body) == b"a body"
    assert (found.tags, found.get_property("n"), found.get_property("other")) == ("x", "7", None)
    assert (found.message.topic, found.message.queue_id, found.message.queue_offset) == ("T", 3, 7)
    assert list(found.message.keys) == ["k1", "k2"]


def test_a_body_is_a_view_of_the_record() -> None:
    raw = bytearray(raw_record(b"a body"))
    found = FilterRecord(memoryview(raw))
    raw[raw.index(b"a body")] = ord("b")
    assert bytes(found.body) == b"b body"


def test_a_compressed_body_is_as_it_was_sent() -> None:
    assert bytes(record(b"a body" * 1000, is_compressed=True).body) == b"a body" * 1000


def test_a_body_that_does_not_inflate_is_a_protocol_error() -> None:
    raw = bytearray(raw_record(b"not zlib"))
    flag = CompressionType.ZLIB.sys_flag.to_bytes(4, "big")
    raw[36:40] = flag
    with pytest.raises(ProtocolError):
        _ = FilterRecord(memoryview(raw)).body
