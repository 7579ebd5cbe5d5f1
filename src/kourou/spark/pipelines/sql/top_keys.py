"""The keys that came most, of the sketch that Spark's `approx_top_k_accumulate` makes.

Spark's own `approx_top_k` leaves out keys of which the sketch cannot prove that they are among the first: in
a minute with many keys of about the same number, that is all of them. The sketch has counts for the keys that
it still tracks, as Misra and Gries do: each is a lower bound, too low by at most the sketch's error.

Bytes, little-endian (Apache DataSketches, frequencies ItemsSketch): preamble_longs u8 (low 6 bits; 1: empty),
version u8, family u8, 5 more bytes, active_items i32, unused i32, stream_weight i64, error i64,
counts i64[active_items], then for each item: size i32, UTF-8.
"""

from __future__ import annotations

import struct
from typing import Final

TOP_KEYS_TYPE: Final = "keys array<struct<key: string, messages: bigint>>, is_approximate boolean"
"""What `top_keys` gives, as fields of a struct in Spark's DDL."""

_PREAMBLE: Final = struct.Struct("<BBB5xiiqq")
_EMPTY_PREAMBLE_LONGS: Final = 1
_PREAMBLE_LONGS_MASK: Final = 0x3F
_VERSION: Final = 1
_FAMILY: Final = 10
_SIZE: Final = struct.Struct("<i")


def top_keys(sketch: bytes, top: int) -> tuple[list[tuple[str, int]], bool]:
    """The first keys with their counts, and whether counts are lower bounds. ValueError: other bytes."""
    if len(sketch) < _SIZE.size or (sketch[1], sketch[2]) != (_VERSION, _FAMILY):
        raise ValueError(f"this Spark's sketches have another format: they begin with {sketch[:8].hex()}")
    if sketch[0] & _PREAMBLE_LONGS_MASK == _EMPTY_PREAMBLE_LONGS:
        return [], False
    _, _, _, items, _, _, error = _PREAMBLE.unpack_from(sketch)
    counts = struct.unpack_from(f"<{items}q", sketch, _PREAMBLE.size)
    at = _PREAMBLE.size + 8 * items
    found = []
    for count in counts:
        (size,) = _SIZE.unpack_from(sketch, at)
        at += _SIZE.size
        found.append((sketch[at : at + size].decode("utf-8", "replace"), count))
        at += size
    found.sort(key=lambda each: (-each[1], each[0]))
    return found[:top], error > 0
