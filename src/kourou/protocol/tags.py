"""Tags: the hash that the ConsumeQueue keeps of them, and the expression that selects them.

A tag's code is Java's `String.hashCode`: over UTF-16 code units, 32 bits, signed. The broker
filters by code alone and the client again by text, so a server recomputes the codes from a
subscription's text instead of trusting those a client sent (the C++ client sends zeros).

Not here: SubscriptionData (bodies), SQL92 expressions (filter).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from kourou.errors import ProtocolError

SUB_ALL: Final = "*"
_TAG_SEPARATOR: Final = "||"
# What Java's `trim` takes off; `strip` alone takes other scripts' spaces too, and so other tags.
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


def java_hash_code(text: str) -> int:
    """`String.hashCode` of `text`, from -2**31 to 2**31 - 1."""
    code = 0
    for unit in _utf16_units(text):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


def _utf16_units(text: str) -> Iterable[int]:
    if text.isascii():
        return text.encode()
    # Native order without a mark: the array reads the units back on the same machine.
    return array("H", text.encode(_NATIVE_UTF16, "surrogatepass"))


_NATIVE_UTF16: Final = "utf-16-le" if array("H", [1]).tobytes() == b"\x01\x00" else "utf-16-be"


def tags_code(tags: str | None) -> int:
    """What the ConsumeQueue stores for a message with these tags; 0 for none."""
    if not tags:
        return 0
    # Long ones are not kept: a peer may send 32 KiB of tags, each time others.
    return _short_tags_code(tags) if len(tags) <= 64 else java_hash_code(tags)


# A topic has few tags, and hashing one costs more than the rest of its message's bookkeeping.
_short_tags_code: Final = lru_cache(maxsize=4096)(java_hash_code)


def parse_tag_expression(expression: str | None) -> tuple[str, ...]:
    """The tags of `a || b`, in their order, each once; empty means every message.

    `*`, nothing and the empty text select everything, as in RocketMQ. Text without any tag,
    such as `||`, selects nothing by accident and is refused with ProtocolError.
    """
    if not expression or expression == SUB_ALL:
        return ()
    tags = (piece.strip(_JAVA_BLANKS) for piece in expression.split(_TAG_SEPARATOR))
    distinct = tuple(dict.fromkeys(tag for tag in tags if tag))
    if not distinct:
        raise ProtocolError(
            f"tag expression {expression!r} names no tag; write 'TagA || TagB', or '*' for every message"
        )
    return distinct
