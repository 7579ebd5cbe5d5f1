"""SpanHashes: Java's `String.hashCode` of many parts of one byte string.

Character j of the string counts 31**-j, which exists modulo 2**32 because 31 is odd. With the running
sum of that, the hash of any part is a difference of two sums, put right by one factor. Parts that
are not ASCII take the slow way. Works apart from index_hash.py on purpose: what checks an index does
not share the code that wrote it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.property_columns import Spans
from kourou.protocol.tags import java_hash_code

Codes = NDArray[np.uint32]

_MASK: Final = 0xFFFFFFFF


class _Powers:
    """31**j and 31**-j for small j, computed as far as they were needed."""

    def __init__(self) -> None:
        self.up: Codes = np.ones(1, np.uint32)
        self.down: Codes = np.ones(1, np.uint32)

    def reach(self, exponent: int) -> None:
        """Have them up to this exponent."""
        if exponent >= len(self.up):
            count = max(exponent + 1, 2 * len(self.up))
            self.up, self.down = _powers(31, count), _powers(pow(31, -1, 1 << 32), count)


def _powers(base: int, count: int) -> Codes:
    factors = np.full(count, base, np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


_shared_powers: Final = _Powers()


class HashCodes(NamedTuple):
    """Hash codes, and by which factor each moves what stands before its part."""

    codes: Codes
    factors: Codes

    def after(self, prefixes: Codes) -> Codes:
        """The codes of the parts with something before them whose codes are `prefixes`."""
        return prefixes * self.factors + self.codes


class SpanHashes:
    """Hash codes of parts of `raw`."""

    __slots__ = ("_data", "_odd", "_raw", "_sums")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._data = np.frombuffer(raw, np.uint8)
        _shared_powers.reach(len(raw))
        self._sums = np.zeros(len(raw) + 1, np.uint32)
        np.cumsum(self._data * _shared_powers.down[: len(raw)], dtype=np.uint32, out=self._sums[1:])
        # Where characters are that take several bytes.
        self._odd = np.flatnonzero(self._data >= 0x80)

    def codes(self, spans: Spans) -> HashCodes:
        """The hash codes of these parts, none of which is empty."""
        _, begins, ends = spans
        powers = _shared_powers.up
        codes = (self._sums[ends] - self._sums[begins]) * powers[ends - 1]
        factors = powers[ends - begins]
        if len(self._odd):
            is_odd = np.searchsorted(self._odd, begins) < np.searchsorted(self._odd, ends)
            for at in np.flatnonzero(is_odd).tolist():
                text = self._raw[begins[at] : ends[at]].decode("utf-8", "replace")
                codes[at] = java_hash_code(text) & _MASK
                units = len(text.encode("utf-16-le", "surrogatepass")) // 2
                factors[at] = pow(31, units, 1 << 32)
        return HashCodes(codes, factors)


def key_hashes(codes: Codes) -> NDArray[np.int64]:
    """What the index keeps of hash codes: without sign, 0 where that is impossible."""
    return np.maximum(np.abs(codes.view(np.int32)), 0).astype(np.int64)
