"""encode_batch: with the kernel a batch is stored and answered, byte for byte, as it is without."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.protocol.batch import BatchEntry, encode_batch_entries
from tests.unit.kernel.twins import ID, Twins, frame, send

PROPERTIES = f"KEYS\x01k1\x02UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02".encode()
HOST = bytes(8)


class Encoder:
    """What the kernel reads of a queue's encoder."""

    topic_part = b"\x06orders"
    magic = 0xDAA320A7


class Queue:
    """What it reads of a queue."""

    topic = "orders"
    next_queue_offset = 7
    encoder: Encoder | None = Encoder()


def entries(*properties: bytes, body: bytes = b"hello") -> bytes:
    return encode_batch_entries(BatchEntry(3, body, raw) for raw in properties)


def encoded(
    kernel: ModuleType, body: bytes, *, last: int = 1 << 20, max_body: int = 1_000
) -> list[int] | None:
    """Where the records lie; None when the kernel leaves the batch alone."""
    found = kernel.encode_batch(body, Queue(), 0, 0, 1, 0, HOST, HOST, 100, last, 5, max_body, 1 << 20)
    return None if found is None else found[3]


def batch(body: bytes, **fields: str) -> bytes:
    properties = f"UNIQ_KEY\x01{ID}\x02WAIT\x01true\x02"
    return frame(send({"m": "true", "i": properties, **fields}, code=320), body)


def test_an_ordinary_batch_is_taken(kernel: ModuleType, twins: Twins) -> None:
    body = entries(PROPERTIES, b"", PROPERTIES, f"UNIQ_KEY\x01{ID}\x02".encode())
    sizes = [88 + 5 + 7 + 2 + length for length in (len(PROPERTIES), 0, len(PROPERTIES))]
    assert encoded(kernel, body) == [100, 100 + sizes[0], 100 + sum(sizes[:2]), 100 + sum(sizes)]
    assert b'"code":0' in twins.feed(batch(body) + batch(body, e="1") + frame(send()))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        entries(PROPERTIES)[:-1],
        entries(PROPERTIES) + b"\0" * 19,
        entries(PROPERTIES) + b"\0" * 30,
        entries(b"TAGS\x01\x02"),
        entries("TAGS\x01é\x02".encode()),
        entries(b"x\x01y\0"),
        entries(PROPERTIES, b"TRAN_MSG\x01true\x02"),
        struct.pack(">iiiii", 22, 0, 0, 0, -1) + b"\0\0",
        struct.pack(">iiiii", 22, 0, 0, 0, 2**31 - 1) + b"\0\0",
        struct.pack(">iiiii", 22, 0, 0, 0, 0) + b"\xff\xff",
        struct.pack(">iiiii", -5, 0, 0, 0, 0) + b"\0\0",
        struct.pack(">iiiii", 0, 0, 0, 0, 0) + b"\0\0",
    ],
)
def test_what_needs_a_look_is_left_alone(kernel: ModuleType, twins: Twins, body: bytes) -> None:
    assert encoded(kernel, body) is None
    twins.feed(batch(body))


def test_there_has_to_be_room(kernel: ModuleType) -> None:
    body = entries(b"", b"")
    end = 100 + 2 * (88 + 5 + 7 + 2)
    assert encoded(kernel, body, last=end) is not None
    assert encoded(kernel, body, last=end - 1) is None
    assert encoded(kernel, body, max_body=10) is not None
    assert encoded(kernel, body, max_body=9) is None


def test_a_queue_without_an_encoder_is_left_alone(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, "encoder", None)
    assert encoded(kernel, entries(b"")) is None


_VALUES = st.sampled_from(
    [b"", b"a", b"true", b"k1", b"k1 k2", b" ", ID.encode(), "é".encode(), b"a\x01b", b"\xff", b"\0"]
)
_PAIRS = st.tuples(
    st.sampled_from([b"UNIQ_KEY", b"TAGS", b"KEYS", b"x", b"", b"DELAY", b"TRAN_MSG"]),
    st.sampled_from([b"\x01", b""]),
    _VALUES,
)
_PROPERTIES = st.builds(
    lambda pairs, end: b"\x02".join(b"".join(pair) for pair in pairs) + end,
    st.lists(_PAIRS, max_size=5),
    st.sampled_from([b"", b"\x02", b"\x02\x02"]),
)
_ENTRIES = st.builds(
    BatchEntry,
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=60),
    st.one_of(st.just(PROPERTIES), _PROPERTIES),
)


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    body = encode_batch_entries(draw(st.lists(_ENTRIES, max_size=5)))
    if body and draw(st.integers(0, 4)) == 0:  # now and then no batch at all
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + draw(st.binary(max_size=3)) + body[at + 1 :]
    return body


@settings(max_examples=150)
@given(st.lists(_bodies(), min_size=1, max_size=3), st.sampled_from(["0", "1", "4", "8", "16"]))
def test_any_batches_come_out_the_same(twins: Twins, bodies: list[bytes], sys_flag: str) -> None:
    twins.feed(b"".join(batch(body, f=sys_flag) for body in bodies) + frame(send()))
