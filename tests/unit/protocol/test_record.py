"""The stored record against bytes put together by hand, and everything a record may not be."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.layout import (
    BLANK_MAGIC_CODE,
    HOST_V6_EXTRA_BYTES,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECORD,
)
from kourou.protocol.message_id import encode_host
from kourou.protocol.record import (
    RecordEncoder,
    append_property_crc,
    body_crc,
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    has_property_crc,
    verify_property_crc,
)
from kourou.protocol.record_fields import record_mark, record_positions

V4 = encode_host("127.0.0.1", 47834)
V6 = encode_host("2001:db8::7", 47834)
STORE_V4 = encode_host("127.0.0.1", 10911)
STORE_V6 = encode_host("::1", 10911)
PROPERTIES = b"TAGS\x01TagA\x02"


def by_hand(
    *,
    topic: bytes = b"TopicTest",
    body: bytes = b"hello",
    properties: bytes = PROPERTIES,
    born: bytes = V4,
    store: bytes = STORE_V4,
    sys_flag: int = 0,
    v2: bool = False,
) -> bytes:
    """A record written field by field."""
    sys_flag |= (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
    fields = [
        struct.pack(">I", MESSAGE_MAGIC_CODE_V2 if v2 else MESSAGE_MAGIC_CODE),
        struct.pack(">i", zlib.crc32(body) & 0x7FFFFFFF),
        struct.pack(">ii", 2, 9),
        struct.pack(">qq", 7, 123456),
        struct.pack(">iq", sys_flag, 1_794_711_764_050),
        born,
        struct.pack(">q", 1_794_711_764_287),
        store,
        struct.pack(">iq", 3, 77),
        struct.pack(">i", len(body)) + body,
        struct.pack(">H" if v2 else ">B", len(topic)) + topic,
        struct.pack(">h", len(properties)) + properties,
    ]
    rest = b"".join(fields)
    return struct.pack(">i", len(rest) + 4) + rest


def encoded(**changes: Any) -> bytes:
    given: dict[str, Any] = {"topic": b"TopicTest", "store": STORE_V4, "body": b"hello"}
    given |= {"properties": PROPERTIES, "born": V4, "sys_flag": 0} | changes
    encoder = RecordEncoder(given["topic"].decode(), 2, given["store"])
    parts = encoder.parts(
        given["body"],
        given["properties"],
        queue_offset=7,
        phy_offset=123456,
        store_timestamp=1_794_711_764_287,
        born_timestamp=1_794_711_764_050,
        born_host=given["born"],
        sys_flag=given["sys_flag"],
        flag=9,
        reconsume_times=3,
        prepared_transaction_offset=77,
    )
    record = b"".join(parts)
    assert encoder.size(given["body"], given["properties"], given["born"]) == len(record)
    return record


HOSTS: list[dict[str, Any]] = [
    {"born": born, "store": store} for born in (V4, V6) for store in (STORE_V4, STORE_V6)
]


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("body", [b"", b"hello", bytes(70_000)])
def test_encoding_gives_the_bytes_written_by_hand(hosts: dict[str, Any], body: bytes) -> None:
    assert encoded(body=body, **hosts) == by_hand(body=body, **hosts)


def test_the_smallest_record_has_91_bytes() -> None:
    assert len(encoded(topic=b"", body=b"", properties=b"")) == MIN_RECORD_BYTES == 91
    assert body_crc(b"") == 0


def test_a_long_topic_gets_a_v2_record() -> None:
    longest_v1, shortest_v2 = b"t" * 127, b"t" * 128
    assert encoded(topic=longest_v1) == by_hand(topic=longest_v1)
    assert encoded(topic=shortest_v2) == by_hand(topic=shortest_v2, v2=True)
    assert decode_record(encoded(topic=shortest_v2)).topic == "t" * 128


def test_positions_are_where_the_fields_are() -> None:
    raw = by_hand()
    assert struct.unpack_from(">q", raw, RECORD.at("queue_offset")) == (7,)
    assert struct.unpack_from(">q", raw, RECORD.at("phy_offset")) == (123456,)
    assert struct.unpack_from(">q", raw, RECORD.at("store_timestamp")) == (1_794_711_764_287,)
    assert raw[RECORD.at("born_host") :][:8] == V4
    assert raw[RECORD.at("store_host") :][:8] == STORE_V4
    assert struct.unpack_from(">q", raw, RECORD.at("prepared_transaction_offset")) == (77,)
    assert raw[RECORD.size :].startswith(b"hello")
    v6 = by_hand(born=V6)
    shifted = RECORD.at("store_timestamp") + HOST_V6_EXTRA_BYTES
    assert struct.unpack_from(">q", v6, shifted) == (1_794_711_764_287,)


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("v2", [False, True])
def test_decoding_gives_every_field_and_the_same_bytes_again(hosts: dict[str, Any], v2: bool) -> None:
    raw = by_hand(v2=v2, sys_flag=0x8, **hosts)
    message = decode_record(b"before" + raw + b"after", 6, verify_body_crc=True)
    assert (message.topic, message.body, message.properties) == ("TopicTest", b"hello", {"TAGS": "TagA"})
    assert (message.queue_id, message.flag, message.queue_offset, message.phy_offset) == (2, 9, 7, 123456)
    assert (message.born_timestamp, message.store_timestamp) == (1_794_711_764_050, 1_794_711_764_287)
    assert (message.raw_born_host, message.raw_store_host) == (hosts["born"], hosts["store"])
    assert (message.reconsume_times, message.prepared_transaction_offset) == (3, 77)
    assert (message.transaction_type, message.store_size) == (8, len(raw))
    assert encode_record(message) == raw


def test_a_wrong_ipv6_bit_from_a_client_does_not_reach_the_record() -> None:
    assert decode_record(encoded(sys_flag=0x30 | 0x301)).sys_flag == 0x301


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"properties": bytes(32768)}, "properties of 32768 bytes do not fit: the record allows 32767"),
        ({"topic": b"t" * 32768}, "a topic of 32768 bytes does not fit"),
        ({"sys_flag": 1 << 40}, "a field of the message does not fit its record"),
    ],
)
def test_what_does_not_fit_a_record_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        encoded(**changes)


@pytest.mark.parametrize("host", [{"born": V4[:4]}, {"store": V6[:16]}])
def test_a_host_of_another_length_is_refused(host: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="a stored host has 8 or 20 bytes"):
        encoded(**host)


def test_a_blank_has_size_and_magic() -> None:
    blank = encode_blank(4577)
    assert blank == bytes.fromhex("000011e1cbd43194")
    assert record_mark(b"xx" + blank, 2) == (4577, BLANK_MAGIC_CODE)
    with pytest.raises(ProtocolError, match="no record at byte 0: a blank of 4577 bytes is there"):
        decode_record(blank + bytes(4577))
    with pytest.raises(ProtocolError, match="3 bytes are left, too few for a mark"):
        record_mark(blank, 5)


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_a_pull_answer_is_walked_and_decoded(view: Any) -> None:
    raws = [by_hand(body=b"x" * n, born=V6 if n % 2 else V4, v2=n == 3) for n in range(5)]
    pull = view(b"".join(raws))
    positions = record_positions(pull)
    assert [bytes(pull[a:b]) for a, b in zip(positions, positions[1:], strict=False)] == raws
    assert [encode_record(message) for message in decode_records(pull)] == raws
    assert (record_positions(view(b"")), decode_records(view(b""))) == ([0], [])


def patched(pos: int, value: bytes, raw: bytes | None = None) -> bytes:
    changed = bytearray(raw or by_hand())
    changed[pos : pos + len(value)] = value
    return bytes(changed)


TOPIC_LENGTH_POS = RECORD.size + len(b"hello")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "0 bytes are left, a record has 91 at least"),
        (by_hand()[:90], "90 bytes are left"),
        (by_hand()[:-1], "it is cut off, 1 bytes of 115 are missing"),
        (by_hand(born=V6, store=STORE_V6)[:105], "105 bytes are left, its head has 112"),
        (patched(RECORD.at("magic"), b"\x00"), "its magic is 0x00a320a7 instead of 0xdaa320a7"),
        (patched(RECORD.at("total_size"), struct.pack(">i", -5)), "its total size is -5 bytes"),
        (patched(RECORD.at("total_size"), struct.pack(">i", 114)), "its lengths do not add up"),
        (patched(RECORD.at("total_size"), struct.pack(">i", 116)) + b"x", "its lengths do not add up"),
        (
            patched(RECORD.at("body_length"), struct.pack(">i", -1)),
            "its body length is -1 in a record of 115",
        ),
        (
            patched(RECORD.at("body_length"), struct.pack(">i", 1 << 30)),
            "its body length is 1073741824",
        ),
        (patched(TOPIC_LENGTH_POS, b"\x80", by_hand(topic=b"t" * 128)), "its topic length is 128"),
        (patched(TOPIC_LENGTH_POS, b"\x7f"), "its topic length is 127"),
        (patched(TOPIC_LENGTH_POS, b"\xff\xff", by_hand(v2=True)), "its topic length is -1"),
        (patched(TOPIC_LENGTH_POS + 10, b"\xff\xff"), "its lengths do not add up"),
    ],
)
def test_bytes_that_are_no_record(raw: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=f"^no record at byte 0: .*{problem}"):
        decode_record(raw)


def test_a_damaged_body_is_seen_where_that_is_asked() -> None:
    raw = patched(RECORD.size, b"j")
    assert decode_record(raw).body == b"jello"
    with pytest.raises(ProtocolError, match="the body does not match its CRC 907060870"):
        decode_record(raw, verify_body_crc=True)
    with pytest.raises(ProtocolError, match="the body does not match its CRC 907060870"):
        decode_record(memoryview(raw), verify_body_crc=True, with_body=False)
    assert decode_record(memoryview(by_hand()), verify_body_crc=True, with_body=False).body == b""


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (b"\x00", "1 bytes are left, too few"),
        (by_hand()[:50], "it is cut off, 65 bytes are missing"),
        (encode_blank(100) + bytes(92), "a blank of 100 bytes"),
        (bytes(200), "its magic is 0x00000000"),
        (patched(0, bytes(4)), "its total size is 0 bytes"),
    ],
)
def test_the_walk_stops_at_what_is_no_record(tail: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=f"^no record at byte 115: {problem}"):
        record_positions(by_hand() + tail)


def test_text_that_is_no_utf8_does_not_stop_a_consumer() -> None:
    message = decode_record(by_hand(topic=b"T\xff", properties=b"a\x01\xfe\x02"))
    assert (message.topic, message.properties) == ("T�", {"a": "�"})


@pytest.mark.parametrize("properties", [PROPERTIES, PROPERTIES[:-1], b""])
def test_the_crc_property(properties: bytes) -> None:
    raw = append_property_crc(by_hand(properties=properties))
    message = decode_record(raw)
    name, value = raw[-20:-1].split(b"\x01")
    assert (name, raw[-1:], len(value)) == (b"__CRC32#", b"\x02", 10)
    # Lowest digit first.
    assert int(value[::-1]) == zlib.crc32(raw[:-20]) & 0x7FFFFFFF
    assert message.get_property("TAGS") == ("TagA" if properties else None)
    assert has_property_crc(raw) and verify_property_crc(raw) and verify_property_crc(memoryview(raw))


def test_the_crc_property_covers_every_byte_before_it() -> None:
    raw = append_property_crc(by_hand())
    for pos in range(len(raw)):
        assert not verify_property_crc(patched(pos, bytes([raw[pos] ^ 1]), raw))
    assert not verify_property_crc(by_hand())
    assert not has_property_crc(by_hand())
    assert not verify_property_crc(b"")
