"""The keys of a sketch as Spark 4.3 makes it."""

from __future__ import annotations

import struct

import pytest

from kourou.spark.pipelines.sql.stats import top_keys


def sketch(counts: dict[str, int], *, error: int = 0) -> bytes:
    """An ItemsSketch of Apache DataSketches with so many counts."""
    head = struct.pack("<BBBBBBHiiqq", 4, 1, 10, 14, 3, 0, 0, len(counts), 0, sum(counts.values()), error)
    items = b"".join(struct.pack("<i", len(key.encode())) + key.encode() for key in counts)
    return head + struct.pack(f"<{len(counts)}q", *counts.values()) + items


def test_the_keys_that_came_most_are_first() -> None:
    found = top_keys(sketch({"a": 3, "grün": 7, "b": 3, "": 1}), 3)
    assert found == ([("grün", 7), ("a", 3), ("b", 3)], False)


def test_counts_with_an_error_are_approximate() -> None:
    assert top_keys(sketch({"a": 3}, error=2), 5) == ([("a", 3)], True)


def test_a_minute_without_keys_has_none() -> None:
    assert top_keys(bytes([1, 1, 10, 14, 3, 4, 0, 0]), 5) == ([], False)


@pytest.mark.parametrize("other", [b"", b"\x04\x02\x0a\x00", b"\x04\x01\x07\x00"])
def test_another_format_is_an_error(other: bytes) -> None:
    with pytest.raises(ValueError, match="another sketch format"):
        top_keys(other, 5)
