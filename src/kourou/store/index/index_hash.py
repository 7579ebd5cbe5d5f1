"""Key hashes of the IndexFile, many at a time.

The index knows a key only by the hash of `topic#key`: Java's `String.hashCode` without its sign,
0 where that is impossible (-2**31). Computed one character at a time a hash costs more than the rest
of its message's bookkeeping; here all keys of a batch are one array of UTF-16 units, with a 0 behind
each key, which adds nothing to a sum. Unit j of the array counts 31**-j, which exists modulo 2**32
because 31 is odd; the sum over a key's units is its hash code but for one factor, known from its end.
Not here: what becomes of a hash (index_slots.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.tags import java_hash_code

# Units hashed at one go: a usual batch, while the tables still fit the processor's cache.
# A key longer than this (a record's properties end at 32,767 bytes) is hashed by itself.
_WINDOW_UNITS: Final = 1 << 16
# Names of topics are few; a peer that sends ever new ones must not fill the memory.
_MAX_PREFIXES: Final = 100_000
_END: Final = "\x00"

Hashes = NDArray[np.int32]
_Codes = NDArray[np.uint32]
_Units = NDArray[np.uint8] | NDArray[np.uint16]
_Positions = NDArray[np.intp]


def key_hash(topic: str, key: str) -> int:
    """The hash that the index keeps of one key of a topic."""
    code = abs(java_hash_code(f"{topic}#{key}"))
    return 0 if code > 0x7FFF_FFFF else code


class KeyHasher:
    """Hashes keys by the batch, and remembers what the topics contribute."""

    __slots__ = ("_prefixes",)

    def __init__(self) -> None:
        self._prefixes = _Prefixes()

    def hashes(self, topics: Sequence[str], keys: Sequence[Sequence[str]], counts: _Positions) -> Hashes:
        """The hashes of all keys, one record's behind the other. Topic, keys and their number: one
        of each for every record."""
        if len(self._prefixes) > _MAX_PREFIXES:
            self._prefixes.clear()
        prefixes = np.fromiter(map(self._prefixes.__getitem__, topics), np.uint32, len(topics))
        words = [word for words in keys for word in words]
        codes, lengths = _codes(words)
        codes += np.repeat(prefixes, counts) * _power(lengths)
        return np.maximum(np.abs(codes.view(np.int32)), 0)


class _Prefixes(dict[str, int]):
    """Topic to the hash code of `topic#`, computed on first use."""

    def __missing__(self, topic: str) -> int:
        code = self[topic] = java_hash_code(topic + "#") & 0xFFFF_FFFF
        return code


def _powers(base: int) -> _Codes:
    factors = np.full(_WINDOW_UNITS + 1, base, np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


_POWERS: Final = _powers(31)
_INVERSE_POWERS: Final = _powers(pow(31, -1, 1 << 32))


def _power(lengths: _Positions) -> _Codes:
    """31 to the power of each length."""
    if lengths.size and int(lengths.max()) > _WINDOW_UNITS:
        return np.array([pow(31, int(length), 1 << 32) for length in lengths], np.uint32)
    return _POWERS[lengths]


def _codes(words: Sequence[str]) -> tuple[_Codes, _Positions]:
    """Hash code and length of each word."""
    units = _units(_END.join(words) + _END)
    ends = np.flatnonzero(units == 0)
    if ends.size != len(words):  # none at all, or a word with a 0 in it
        return _codes_one_by_one(words)
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    return _window_by_window(words, units, starts, ends), ends - starts


def _units(text: str) -> _Units:
    if text.isascii():
        return np.frombuffer(text.encode(), np.uint8)
    return np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")


def _codes_one_by_one(words: Sequence[str]) -> tuple[_Codes, _Positions]:
    codes = np.array([java_hash_code(word) for word in words], np.int32).view(np.uint32)
    return codes, np.array([len(word.encode("utf-16-le", "surrogatepass")) // 2 for word in words], np.intp)


def _window_by_window(words: Sequence[str], units: _Units, starts: _Positions, ends: _Positions) -> _Codes:
    if units.size <= _WINDOW_UNITS:
        return _window(units, starts, ends)
    codes = np.empty(ends.size, np.uint32)
    first = 0
    while first < ends.size:
        start = int(starts[first])
        last = int(np.searchsorted(ends, start + _WINDOW_UNITS))
        if last == first:
            codes[first] = java_hash_code(words[first]) & 0xFFFF_FFFF
            last += 1
        else:
            window = slice(first, last)
            codes[window] = _window(
                units[start : ends[last - 1] + 1], starts[window] - start, ends[window] - start
            )
        first = last
    return codes


def _window(units: _Units, starts: _Positions, ends: _Positions) -> _Codes:
    sums = np.add.reduceat(units * _INVERSE_POWERS[: units.size], starts, dtype=np.uint32)
    return sums * _POWERS[ends - 1]
