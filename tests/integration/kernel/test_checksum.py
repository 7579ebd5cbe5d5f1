"""checksum, checksums: the kernel's own CRC-32 is zlib's, whatever the length."""

from __future__ import annotations

import random
import zlib
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st


def test_every_length_up_to_some_blocks(kernel: ModuleType) -> None:
    chance = random.Random(7)
    for length in range(400):
        data = chance.randbytes(length)
        assert kernel.checksum(data) == zlib.crc32(data) & 0x7FFF_FFFF, length


@pytest.mark.parametrize("length", [4_095, 4_096, 65_536, 65_599, 1_000_003])
def test_long_ones(kernel: ModuleType, length: int) -> None:
    for data in (bytes(length), b"\xff" * length, random.Random(length).randbytes(length)):
        assert kernel.checksum(data) == zlib.crc32(data) & 0x7FFF_FFFF


def test_only_bytes_have_one(kernel: ModuleType) -> None:
    with pytest.raises(TypeError, match="bytes"):
        kernel.checksum("text")


def positions(*numbers: int) -> bytes:
    return np.array(numbers, np.int64).tobytes()


@given(
    data=st.binary(max_size=300),
    cuts=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=20),
)
def test_many_at_once(kernel: ModuleType, data: bytes, cuts: list[tuple[int, int]]) -> None:
    spans = [sorted(min(cut, len(data)) for cut in pair) for pair in cuts]
    begins, ends = positions(*(begin for begin, _ in spans)), positions(*(end for _, end in spans))
    expected = np.array([zlib.crc32(data[begin:end]) & 0x7FFF_FFFF for begin, end in spans], np.uint32)
    assert kernel.checksums(memoryview(data), begins, ends) == expected.tobytes()


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (positions(0), positions(101)),
        (positions(0, -1), positions(100, 50)),
        (positions(60), positions(59)),
        (positions(101), positions(101)),
        (positions(0, 1), positions(100)),
        (positions(0)[1:], positions(100)[1:]),
    ],
)
def test_none_where_a_body_is_not_within_the_data(kernel: ModuleType, begins: bytes, ends: bytes) -> None:
    # The bytes go on behind the part that is passed.
    data = memoryview(bytes(300))[100:200]
    assert kernel.checksums(data, begins, ends) is None
    assert kernel.checksums(data, positions(0, 100), positions(100, 100)) is not None
