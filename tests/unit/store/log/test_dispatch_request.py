"""DispatchRequest: what is read from a record, and which bytes are refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.layout import RECORD
from kourou.protocol.record import RecordEncoder, encode_blank
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC
from kourou.store.log.dispatch_request import (
    Blank,
    DispatchRequest,
    close_properties,
    index_keys,
    read_dispatch_request,
)
from tests.unit.store.message_stores import BORN_HOST, NOW_MS, STORE_HOST

V6_HOST = bytes(16) + bytes((0, 0, 0x2A, 0x9F))


def record(
    body: bytes = b"paid",
    properties: str = "",
    *,
    topic: str = "orders",
    queue_id: int = 3,
    phy_offset: int = 4096,
    born_host: bytes = BORN_HOST,
    store_host: bytes = STORE_HOST,
    sys_flag: int = 0,
    magic: int | None = None,
) -> bytes:
    parts = RecordEncoder(topic, queue_id, store_host, magic=magic).parts(
        body,
        properties.encode(),
        queue_offset=9,
        phy_offset=phy_offset,
        store_timestamp=NOW_MS,
        born_timestamp=NOW_MS - 5,
        born_host=born_host,
        sys_flag=sys_flag,
    )
    return b"".join(parts)


def read(raw: bytes, phy_offset: int = 4096, **options: Any) -> DispatchRequest | Blank:
    return read_dispatch_request(raw, 0, phy_offset, DEFAULT_DELAY_LEVELS, **options)


def test_everything_the_derived_files_need_is_read() -> None:
    raw = record(properties="TAGS\x01paid\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01id-1\x02")
    assert read(raw) == DispatchRequest(
        "orders", 3, 9, 4096, len(raw), tags_code("paid"), NOW_MS, 0, ("id-1", "k1", "k2")
    )


@pytest.mark.parametrize("born_host", [BORN_HOST, V6_HOST])
@pytest.mark.parametrize("store_host", [STORE_HOST, V6_HOST])
@pytest.mark.parametrize("body", [b"", b"x", bytes(1000)])
def test_hosts_of_both_kinds_and_any_body(born_host: bytes, store_host: bytes, body: bytes) -> None:
    request = read(record(body, "TAGS\x01t\x02", born_host=born_host, store_host=store_host))
    assert isinstance(request, DispatchRequest)
    assert (request.topic, request.store_timestamp, request.tags_code) == ("orders", NOW_MS, tags_code("t"))


def test_a_long_topic_is_in_a_v2_record() -> None:
    topic = "%RETRY%" + "g" * 200
    request = read(record(topic=topic))
    assert isinstance(request, DispatchRequest)
    assert request.topic == topic


def test_the_record_may_lie_anywhere_in_the_buffer() -> None:
    raw = b"????" + record() + b"!!!!"
    request = read_dispatch_request(memoryview(raw), 4, 4096, DEFAULT_DELAY_LEVELS)
    assert isinstance(request, DispatchRequest)
    assert request.size == len(raw) - 8


def test_a_blank_says_how_many_bytes_are_left() -> None:
    assert read(encode_blank(77)) == Blank(77)


@pytest.mark.parametrize(
    ("sys_flag", "in_consume_queue", "in_index"),
    [
        (0, True, True),
        (MessageSysFlag.TRANSACTION_PREPARED_TYPE, False, True),
        (MessageSysFlag.TRANSACTION_COMMIT_TYPE, True, True),
        (MessageSysFlag.TRANSACTION_ROLLBACK_TYPE, False, False),
    ],
)
def test_where_transaction_records_go(sys_flag: int, in_consume_queue: bool, in_index: bool) -> None:
    request = read(record(sys_flag=int(sys_flag)))
    assert isinstance(request, DispatchRequest)
    assert (request.in_consume_queue, request.in_index) == (in_consume_queue, in_index)


@pytest.mark.parametrize(
    ("topic", "properties", "code"),
    [
        (SCHEDULE_TOPIC, "DELAY\x012\x02TAGS\x01t\x02", NOW_MS + 5_000),
        (SCHEDULE_TOPIC, "DELAY\x0199\x02", NOW_MS + 7_200_000),
        (SCHEDULE_TOPIC, "DELAY\x010\x02TAGS\x01t\x02", tags_code("t")),
        (SCHEDULE_TOPIC, "DELAY\x01soon\x02", 0),
        (SCHEDULE_TOPIC, "TAGS\x01t\x02", tags_code("t")),
        ("orders", "DELAY\x012\x02TAGS\x01t\x02", tags_code("t")),
        ("orders", "", 0),
    ],
)
def test_tags_code_is_the_time_of_delivery_in_the_schedule_topic_only(
    topic: str, properties: str, code: int
) -> None:
    request = read(record(topic=topic, properties=properties))
    assert isinstance(request, DispatchRequest)
    assert request.tags_code == code


@pytest.mark.parametrize(
    ("uniq_key", "keys", "words"),
    [
        (None, None, ()),
        ("id", None, ("id",)),
        (None, "a b", ("a", "b")),
        ("id", " a  b ", ("id", "a", "b")),
        ("", "", ()),
    ],
)
def test_words_of_the_index(uniq_key: str | None, keys: str | None, words: tuple[str, ...]) -> None:
    assert index_keys(uniq_key, keys) == words


# -- what is refused -----------------------------------------------------------------------------


def changed(raw: bytes, position: int, value: bytes) -> bytes:
    return raw[:position] + value + raw[position + len(value) :]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "too few"),
        (bytes(100), "magic 0x00000000"),
        (record()[:-1], "does not fit"),
        (changed(record(), 0, struct.pack(">i", 90)), "does not fit"),
        (changed(record(), 0, struct.pack(">i", -5)), "does not fit"),
        (record(phy_offset=8192), "belongs at 8192"),
        (changed(record(), RECORD.at("body_length"), struct.pack(">i", -1)), "body length is -1"),
        (changed(record(), RECORD.at("body_length"), struct.pack(">i", 5000)), "body length is 5000"),
        (changed(record(), RECORD.at("body_length"), struct.pack(">i", 3)), "topic length is 100"),
        (changed(record(b"pa\1d"), RECORD.at("body_length"), struct.pack(">i", 2)), "do not add up"),
        (changed(record(), RECORD.at("body_crc"), b"\x00\x00\x00\x01"), "does not match its CRC 1$"),
        (changed(record(), RECORD.at("queue_id"), b"\xff"), "no queue 'orders'/-"),
        (record(topic="a/b"), "no queue 'a/b'"),
        (record(topic=".."), "no queue '..'"),
        (record(topic="a\0b"), "no queue"),
        (record(topic="t" * 300), "no queue"),
    ],
)
def test_bytes_that_are_no_record_are_refused_with_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        read(raw)


def test_an_empty_topic_is_refused() -> None:
    raw = record(topic="", properties="")
    with pytest.raises(ProtocolError, match="no queue ''"):
        read(raw)


def test_a_topic_length_that_apache_reads_as_negative_is_refused() -> None:
    raw = record(topic="t" * 127, properties="A\x01b\x02")
    at = raw.index(b"\x7f" + b"t" * 127)
    with pytest.raises(ProtocolError):
        read(changed(raw, at, b"\x80"))


def test_every_flipped_byte_of_the_length_fields_is_noticed() -> None:
    raw = record(properties="TAGS\x01t\x02")
    topic_at = raw.index(b"\x06orders")
    for position in (*range(8), *range(28, 36), *range(84, 88), topic_at, topic_at + 7, topic_at + 8):
        with pytest.raises(ProtocolError):
            read(changed(raw, position, bytes([raw[position] ^ 0x40])))


def test_without_the_crc_check_a_changed_body_passes() -> None:
    raw = record(b"paid").replace(b"paid", b"pain")
    with pytest.raises(ProtocolError, match="CRC"):
        read(raw)
    assert isinstance(read(raw, check_crc=False), DispatchRequest)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_sector_of_the_properties_lost_in_a_power_cut_is_noticed(lost: int) -> None:
    """Nothing else covers the properties: the record would come back with zeros in it."""
    raw = record(properties="note\x01" + "n" * 1200 + "\x02")
    torn = changed(raw, lost * 512, bytes(min(512, len(raw) - lost * 512)))
    assert len(torn) == len(raw)
    with pytest.raises(ProtocolError, match="sector"):
        read(torn)


def test_a_zero_in_a_property_is_no_lost_sector() -> None:
    request = read(record(properties="note\x01a\0b\x02"))
    assert isinstance(request, DispatchRequest)


@pytest.mark.parametrize("body", [b"", b"paid"])
def test_a_record_of_which_any_first_part_was_written_is_noticed(body: bytes) -> None:
    """A write that failed half-way, without a body, once came back as a message with zeros in it."""
    raw = record(body, "UNIQ_KEY\x01id-1\x02note\x01n\x02")
    for written in range(len(raw)):
        with pytest.raises(ProtocolError):
            read(raw[:written].ljust(len(raw), b"\0"))


def test_properties_that_end_with_a_zero_are_closed_before_they_are_stored() -> None:
    assert close_properties(b"note\x01n\0") == b"note\x01n\0\x02"
    assert close_properties(b"note\x01n\x02") == b"note\x01n\x02"
    assert close_properties(b"") == b""
