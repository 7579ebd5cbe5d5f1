"""Records, batches and ids: round trips, and bytes from anywhere raise ProtocolError or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.batch import BatchEntry, encode_batch_entries, split_batch
from kourou.protocol.compression import CompressionType, compress, decompress, inflate_body
from kourou.protocol.message_id import (
    UniqueIdGenerator,
    offset_msg_id,
    parse_offset_msg_id,
    parse_unique_id,
)
from kourou.protocol.record import (
    RecordEncoder,
    append_property_crc,
    body_crc,
    decode_record,
    decode_records,
    encode_record,
    verify_property_crc,
)
from kourou.protocol.record_fields import record_positions
from kourou.protocol.tags import java_hash_code, parse_tag_expression

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
topics = st.text(st.characters(codec="utf-8"), max_size=60) | st.text("abc%|", min_size=100, max_size=300)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    encoder = RecordEncoder(draw(topics), draw(i32), draw(hosts))
    parts = encoder.parts(
        draw(st.binary(max_size=200)),
        draw(st.binary(max_size=200)),
        queue_offset=draw(i64),
        phy_offset=draw(i64),
        store_timestamp=draw(i64),
        born_timestamp=draw(i64),
        born_host=draw(hosts),
        sys_flag=draw(i32),
        flag=draw(i32),
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
    )
    return b"".join(parts)


@given(records())
def test_a_record_decodes_and_encodes_to_itself(raw: bytes) -> None:
    message = decode_record(raw, verify_body_crc=True)
    assert message.store_size == len(raw)
    assert message.body_crc == body_crc(message.stored_body)
    assert encode_record(message) == raw


@given(st.lists(records(), max_size=6))
def test_concatenated_records_come_apart(raws: list[bytes]) -> None:
    pull = b"".join(raws)
    positions = record_positions(pull)
    assert [pull[a:b] for a, b in zip(positions, positions[1:], strict=False)] == raws
    assert [encode_record(message) for message in decode_records(memoryview(pull))] == raws


def only_protocol_errors(step: Callable[[bytes], Any], raw: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        step(raw)


READERS: tuple[Callable[[bytes], Any], ...] = (
    decode_record,
    lambda raw: decode_record(raw, verify_body_crc=True),
    decode_records,
    record_positions,
    verify_property_crc,
    split_batch,
    lambda raw: [decompress(raw, kind) for kind in CompressionType],
)


@given(st.binary(max_size=300))
def test_garbage_raises_only_protocol_errors(raw: bytes) -> None:
    for read in READERS:
        only_protocol_errors(read, raw)


@given(records(), st.data())
def test_damaged_records_raise_only_protocol_errors(raw: bytes, data: st.DataObject) -> None:
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(raw)))])
    for damaged in (bytes(changed), cut):
        for read in READERS:
            only_protocol_errors(read, damaged)


@given(records())
def test_every_field_of_a_decoded_record_can_be_read(raw: bytes) -> None:
    message = decode_record(raw)
    assert isinstance(repr(message), str)
    assert isinstance(message.born_host, str)
    only_protocol_errors(lambda _: message.body, b"")


@given(records())
def test_the_crc_property_is_verified(raw: bytes) -> None:
    assert verify_property_crc(append_property_crc(raw))


entries = st.builds(BatchEntry, i32, st.binary(max_size=100), st.binary(max_size=100))


@given(st.lists(entries, max_size=6))
def test_a_batch_comes_apart(batch: list[BatchEntry]) -> None:
    assert split_batch(encode_batch_entries(batch)) == batch


@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_a_batch_that_is_cut_off_is_an_error_or_shorter(batch: list[BatchEntry], data: st.DataObject) -> None:
    raw = encode_batch_entries(batch)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    try:
        found = split_batch(cut)
    except ProtocolError:
        return
    assert found == batch[: len(found)] and len(found) < len(batch)


@given(st.binary(max_size=2000), st.sampled_from(list(CompressionType)))
def test_bodies_survive_compression(body: bytes, kind: CompressionType) -> None:
    assert inflate_body(compress(body, kind), kind.sys_flag) == body


@given(hosts, st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_offset_ids_come_apart(host: bytes, port: int, phy_offset: int) -> None:
    store_host = host[:-4] + port.to_bytes(4, "big")
    assert parse_offset_msg_id(offset_msg_id(store_host, phy_offset)) == (store_host, phy_offset)


@given(st.text(max_size=60) | st.text("0123456789abcdefABCDEF ", min_size=32, max_size=32))
def test_any_text_is_an_id_or_a_protocol_error(text: str) -> None:
    for parse in (parse_offset_msg_id, parse_unique_id, parse_tag_expression):
        with contextlib.suppress(ProtocolError):
            parse(text)


@given(
    st.ip_addresses(),
    st.integers(0, 1 << 31),
    st.integers(0, 4_000_000_000_000),
    st.integers(0, 1 << 20),
)
def test_unique_ids_come_apart(ip: Any, pid: int, now_ms: int, counter: int) -> None:
    next_id = UniqueIdGenerator(
        ip=str(ip), pid=pid, class_loader_hash=7, now_ms=lambda: now_ms, tz=UTC, first_counter=counter
    )
    text = next_id()
    parts = parse_unique_id(text)
    assert text == text.upper()
    assert (parts.pid, parts.class_loader_hash, parts.counter) == (pid & 0xFFFF, 7, counter & 0xFFFF)
    assert parts.nearest_time_ms(now_ms + 1, UTC) == now_ms


@given(st.text())
def test_hash_code_is_the_sum_over_utf16_units(text: str) -> None:
    raw = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]
    total = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    assert (java_hash_code(text) - total) % (1 << 32) == 0
    assert -(1 << 31) <= java_hash_code(text) < 1 << 31
