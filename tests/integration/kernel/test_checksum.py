"""checksum: the kernel's own CRC-32 is zlib's, whatever the length."""

from __future__ import annotations

import random
import zlib
from types import ModuleType

import pytest


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
