"""Records read many at a time mean what they mean one at a time, valid or not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.layout import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, MIN_RECORD_BYTES
from kourou.protocol.message_id import encode_host
from kourou.protocol.properties import PropertyScanner, properties_from_bytes
from kourou.protocol.property_columns import PropertyColumns, Spans
from kourou.protocol.record import RecordEncoder, encode_blank
from kourou.protocol.record_fields import record_mark
from kourou.protocol.tags import java_hash_code
from kourou.store.check.check_window import CheckWindow
from kourou.store.check.span_hashes import SpanHashes
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS
from kourou.store.index.index_hash import key_hash
from kourou.store.log.dispatch_request import Blank, DispatchRequest, read_dispatch_request
from kourou.store.log.record_columns import Piece, Stop, read_piece

HOSTS = (encode_host("127.0.0.1", 1), encode_host("2001:db8::1", 2))
text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=8)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "XTAGS", "TAGSX", "KEY"]) | text.filter(bool)
properties = st.lists(st.tuples(names, text), max_size=6).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)
)
endings = st.sampled_from(["", "\x02", "\x02\x02"])
# Among them some that no folder can be named, and one that is too long for the old format.
topics = st.sampled_from(
    ["t"] * 4
    + ["SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 150, "é主题", "a/b", "..", "", "a\0b", "g" * 128, "g" * 300]
)
long_properties = st.integers(300, 1500).map(lambda size: "note\x01" + "n" * size)
magics = st.sampled_from([None, MESSAGE_MAGIC_CODE_V2])


def in_old_format(parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """A record with one byte for the length of its topic, which may be more than Apache can read."""
    head, body, topic, *rest = parts
    if record_mark(head)[1] == MESSAGE_MAGIC_CODE or topic[0]:
        return parts
    size = int.from_bytes(head[:4], "big") - 1
    mark = size.to_bytes(4, "big") + MESSAGE_MAGIC_CODE.to_bytes(4, "big")
    return mark + head[8:], body, topic[1:], *rest


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records one behind the other, sometimes with a blank at the end; and where they lie."""
    start = draw(st.sampled_from([0, 91, 1 << 40]))
    raw = b""
    for _ in range(draw(st.integers(0, 6))):
        queue_id, store_host = draw(st.integers(-1, 3) | st.just(0)), draw(st.sampled_from(HOSTS))
        parts = RecordEncoder(draw(topics), queue_id, store_host, magic=draw(magics)).parts(
            draw(st.binary(max_size=40)),
            (draw(properties | long_properties) + draw(endings)).encode(),
            queue_offset=draw(st.integers(0, 1 << 40)),
            phy_offset=start + len(raw),
            store_timestamp=draw(st.integers(0, 1 << 41)),
            born_timestamp=0,
            born_host=draw(st.sampled_from(HOSTS)),
            sys_flag=draw(st.sampled_from([0, 1, 4, 8, 12])),
        )
        raw += b"".join(in_old_format(parts) if draw(st.booleans()) else parts)
    return raw + draw(st.sampled_from([b"", bytes(20), encode_blank(20).ljust(20, b"\0")])), start


def one_by_one(raw: bytes, start: int) -> tuple[list[DispatchRequest], int, Stop]:
    """The same with the reader that recovery uses."""
    found, at = [], 0
    while at < len(raw):
        try:
            record = read_dispatch_request(raw, at, start + at, DEFAULT_DELAY_LEVELS)
        except ProtocolError:
            return found, at, Stop.MORE if is_cut_off(raw, at) else Stop.BAD
        if isinstance(record, Blank):
            return found, at, Stop.BLANK
        found.append(record)
        at += record.size
    return found, at, Stop.MORE


def is_cut_off(raw: bytes, at: int) -> bool:
    """Whether the bytes end inside what may be a record: with more of them it may be one."""
    if len(raw) - at < 8:
        return True
    size, magic = record_mark(raw, at)
    return magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) and MIN_RECORD_BYTES <= size > len(raw) - at


def assert_same(piece: Piece, records: list[DispatchRequest]) -> None:
    columns = piece.columns
    assert columns.phy_offsets.tolist() == [record.phy_offset for record in records]
    assert columns.sizes.tolist() == [record.size for record in records]
    assert columns.queue_ids.tolist() == [record.queue_id for record in records]
    assert columns.queue_offsets.tolist() == [record.queue_offset for record in records]
    assert columns.sys_flags.tolist() == [record.sys_flag for record in records]
    assert columns.store_timestamps.tolist() == [record.store_timestamp for record in records]
    assert [raw.decode("utf-8", "replace") for raw in columns.topics] == [record.topic for record in records]


def assert_read_alike(raw: bytes, start: int) -> None:
    records, end, stop = one_by_one(raw, start)
    piece = read_piece(raw, start)
    assert_same(piece, records)
    assert (piece.end, piece.stop) == (end, stop)


@given(logs())
def test_records_are_read_alike(log: tuple[bytes, int]) -> None:
    assert_read_alike(*log)


@given(logs(), st.data())
def test_broken_records_are_refused_alike(log: tuple[bytes, int], data: st.DataObject) -> None:
    raw = bytearray(log[0])
    for _ in range(data.draw(st.integers(1, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert_read_alike(bytes(raw), log[1])


@given(logs(), st.data())
def test_records_with_zeros_in_them_are_refused_alike(log: tuple[bytes, int], data: st.DataObject) -> None:
    """Sectors that a power loss took, and what a write leaves that failed half-way."""
    raw = bytearray(log[0])
    if raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        sector = at - (log[1] + at) % 512
        first, last = data.draw(st.sampled_from([(max(sector, 0), sector + 512), (at, len(raw))]))
        last = min(last, len(raw))
        raw[first:last] = bytes(last - first)
    assert_read_alike(bytes(raw), log[1])


@given(st.binary(max_size=300), st.integers(0, 1 << 40))
def test_noise_holds_no_record(raw: bytes, start: int) -> None:
    assert_read_alike(raw, start)


@given(logs())
def test_a_window_holds_what_the_dispatcher_would_write(log: tuple[bytes, int]) -> None:
    records, _, _ = one_by_one(*log)
    window = CheckWindow(DEFAULT_DELAY_LEVELS)
    piece = read_piece(*log)
    if len(piece.columns):
        window.add(piece.columns)
    queues, keys = window.take()
    units = {
        (*key, *unit)
        for key, rows in queues
        for unit in zip(*(column.tolist() for column in _columns_of(rows)), strict=True)
    }
    assert units == {
        (r.topic, r.queue_id, r.queue_offset, r.phy_offset, r.size, r.tags_code)
        for r in records
        if r.in_consume_queue
    }
    plain = keys.select(~keys.is_tag)
    assert list(zip(plain.phy_offsets.tolist(), plain.hashes.tolist(), strict=True)) == [
        (r.phy_offset, key_hash(r.topic, key)) for r in records if r.in_index for key in r.keys
    ]


def _columns_of(rows: object) -> list[np.ndarray]:
    return [getattr(rows, name) for name in ("queue_offsets", "phy_offsets", "sizes", "tags_codes")]


some_properties = st.tuples(properties, endings).map("".join) | text


@given(st.lists(some_properties, max_size=8) | some_properties.map(lambda one: [one] * 3), names)
def test_properties_of_many_are_those_of_each(texts: list[str], name: str) -> None:
    stored = [text.encode() for text in texts]
    scan: Callable[[str], list[str | None]] = PropertyScanner(name).values
    expected = {
        row: value.encode()
        for row, raw in enumerate(stored)
        if (value := scan(properties_from_bytes(raw))[0]) is not None
    }
    assert PropertyColumns.of(stored).values(name) == expected


@given(st.lists(text, min_size=1, max_size=8))
def test_words_are_cut_at_spaces(values: list[str]) -> None:
    columns = PropertyColumns.of([f"KEYS\x01{value}".encode() for value in values])
    words = columns.word_spans(columns.spans("KEYS"))
    found = [
        (row, columns.joined[begin:end].decode()) for row, begin, end in zip(*map(list, words), strict=True)
    ]
    assert found == [(row, word) for row, value in enumerate(values) for word in value.split(" ") if word]


@given(st.text(min_size=1, max_size=40).filter(lambda value: value.isprintable()), st.data())
def test_hashes_of_parts_are_javas(value: str, data: st.DataObject) -> None:
    raw = value.encode("utf-8")
    begin = data.draw(st.integers(0, len(raw) - 1))
    end = data.draw(st.integers(begin + 1, len(raw)))
    spans = Spans(*(np.array([number], np.intp) for number in (0, begin, end)))
    part = raw[begin:end].decode("utf-8", "replace")
    hashes = SpanHashes(raw).codes(spans)
    assert int(hashes.codes.view(np.int32)[0]) == java_hash_code(part)
    prefix = np.array([java_hash_code("topic#") & 0xFFFFFFFF], np.uint32)
    assert int(hashes.after(prefix).view(np.int32)[0]) == java_hash_code("topic#" + part)
