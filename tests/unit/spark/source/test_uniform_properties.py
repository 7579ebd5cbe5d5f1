"""Records whose properties are of one form, which are read as a matrix, give what all others give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.record import RecordEncoder, decode_records

pa = pytest.importorskip("pyarrow")

from kourou.protocol.record_spans import RecordSpans  # noqa: E402
from kourou.spark.source.arrow_batches import BatchBuilder  # noqa: E402
from kourou.spark.source.arrow_pieces import pieces  # noqa: E402
from kourou.spark.source.property_table import PropertyTable  # noqa: E402
from kourou.spark.source.uniform_properties import UniformProperties  # noqa: E402
from tests.spark.kit.reference_rows import SCHEMA, reference_row, rows_of  # noqa: E402

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BUILDER = BatchBuilder(SCHEMA)

names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "WAIT", "ü"])
letters = st.sampled_from("ab 1\x01\x02=") | st.sampled_from(["ü", "\x00"])


def records_of(properties: list[bytes]) -> bytes:
    encoder = RecordEncoder("orders", 3, HOST)
    return b"".join(
        b"".join(encoder.parts(b"body", each, number, 0, 1, 2, HOST))
        for number, each in enumerate(properties)
    )


def check(properties: list[bytes]) -> None:
    raw = records_of(properties)
    found = rows_of(list(BUILDER.batches(RecordSpans.of(raw), topic="orders", broker="broker-a")))
    assert found == [reference_row(message, "orders", "broker-a") for message in decode_records(raw)]


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Property strings of one length, mostly of one form."""
    form = draw(st.lists(st.tuples(names, st.integers(0, 3)), max_size=4))
    end = draw(st.sampled_from(["\x02", ""]))
    return [
        "\x02".join(
            f"{name}\x01{''.join(draw(st.lists(letters, min_size=size, max_size=size)))}"
            for name, size in form
        ).encode()
        + end.encode()
        for _ in range(draw(st.integers(1, 4)))
    ]


@given(alike())
def test_rows_are_those_of_the_reference(properties: list[bytes]) -> None:
    check(properties)


def even(*properties: bytes) -> UniformProperties | None:
    return UniformProperties.of(RecordSpans.of(records_of(list(properties))))


def test_usual_producers_write_one_form() -> None:
    found = even(
        b"KEYS\x01key-1\x02UNIQ_KEY\x017F01\x02WAIT\x01true\x02",
        b"KEYS\x01key-2\x02UNIQ_KEY\x017F02\x02WAIT\x01true\x02",
    )
    assert found is not None
    assert found.column("KEYS").to_pylist() == ["key-1", "key-2"]
    assert found.column("TAGS").to_pylist() == [None, None]
    assert found.words("KEYS").to_pylist() == [["key-1"], ["key-2"]]
    assert found.words("TAGS").to_pylist() == [[], []]
    assert found.maps().to_pylist() == [
        [("KEYS", "key-1"), ("UNIQ_KEY", "7F01"), ("WAIT", "true")],
        [("KEYS", "key-2"), ("UNIQ_KEY", "7F02"), ("WAIT", "true")],
    ]


def test_several_keys_of_a_record_are_words() -> None:
    found = even(b"KEYS\x01a b", b"KEYS\x01c d")
    assert found is not None and found.words("KEYS").to_pylist() == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize(
    "properties",
    [
        [b"a\x011", b"a\x0122"],
        [b"a\x011\x02b\x012", b"b\x011\x02a\x012"],
        [b"a\x0111", b"a\x011\x02"],
        [b"ab\x011", b"a\x01b1"],
        [b"a\x011\x02a\x012"],
        [b"\x011"],
        [b"a\x01"],
        [b"a"],
        [b"a\x011\x02\x02"],
        [b"a\x011\x011"],
        ["a\x01ü".encode()],
        [b"a\x01\xff"],
        [b"a\x01\x00"],
        [b"a\x011", b"a\x01\x00"],
        [b""],
        [],
    ],
)
def test_other_forms_are_left_to_the_table(properties: list[bytes]) -> None:
    records = RecordSpans.of(records_of(properties))
    assert UniformProperties.of(records) is None
    PropertyTable(records)
    check(properties)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=6), st.integers(0, 3))
def test_pieces_are_what_lies_between(spans: list[tuple[int, int]], before: int) -> None:
    data = bytes(range(200))
    begins, ends, at = [], [], before
    for gap, length in spans:
        begins.append(at + gap)
        ends.append(at + gap + length)
        at += gap + length
    numpy = pytest.importorskip("numpy")
    found = pieces(data, numpy.array(begins, numpy.int64), numpy.array(ends, numpy.int64), pa.binary())
    found.validate(full=True)
    assert found.to_pylist() == [data[begin:end] for begin, end in zip(begins, ends, strict=True)]


@pytest.mark.parametrize("count", [1, 2, 50])
def test_pieces_of_one_length_equally_far_apart(count: int) -> None:
    numpy = pytest.importorskip("numpy")
    data = bytes(range(256)) * 4
    begins = numpy.arange(3, 3 + 10 * count, 10)
    found = pieces(data, begins, begins + 7, pa.binary())
    found.validate(full=True)
    assert found.to_pylist() == [data[begin : begin + 7] for begin in begins.tolist()]
