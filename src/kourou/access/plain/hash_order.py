"""The order in which a HashMap of Java yields its keys.

RocketMQ keeps what a request needs in one, and names the first that is missing: so do we, to refuse in the
same words.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_FIRST_SIZE: Final = 16
_WORD: Final = 0xFFFF_FFFF


def in_hash_order(keys: Collection[str]) -> list[str]:
    """Different keys, given in the order in which they were put.

    >>> in_hash_order(["Orders", "%RETRY%Strangers"]), in_hash_order(["Other", "%RETRY%Workers"])
    (['Orders', '%RETRY%Strangers'], ['%RETRY%Workers', 'Other'])
    """
    size = _FIRST_SIZE
    while len(keys) > size * 3 // 4:
        size *= 2
    return sorted(keys, key=lambda key: _bucket(key, size))


def _bucket(key: str, size: int) -> int:
    hashed = 0
    raw = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & _WORD
    return (hashed ^ hashed >> 16) & (size - 1)
