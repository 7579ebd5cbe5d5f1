"""Properties of a stored record, found in its bytes; nothing else is decoded, and nothing copied.

For filters, which look at many records and send few. Reading follows properties.py: of two pairs with one
name the later counts, a pair without a value is none.
Not here: whole records (record.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import Final

from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.properties import decode_properties, properties_from_bytes
from kourou.protocol.record import (
    BODY_POS,
    HOST_V6_EXTRA_BYTES,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    Buffer,
)

# From the start of a record: total size, magic, sys_flag, and with IPv4 hosts the body's length.
_LENGTHS: Final = Struct(">iI28xi44xi")
_LENGTH: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_BORN_V6: Final = MessageSysFlag.BORNHOST_V6.value
_STORE_V6: Final = MessageSysFlag.STOREHOSTADDRESS_V6.value
_HOSTS_V6: Final = _BORN_V6 | _STORE_V6
_FindAll = Callable[[Buffer, int, int], list[bytes]]
_Match = Callable[[Buffer, int, int], re.Match[bytes] | None]
# Each name is a search of its own; for many of them a dictionary is cheaper.
_MAX_SEARCHES: Final = 8


def properties_start(buffer: Buffer, pos: int, size_bytes: int) -> int:
    """Where the property string of the record at `pos` begins, which ends with the record; -1 when no
    record of this size is there."""
    try:
        total_size, magic, sys_flag, body_length = _LENGTHS.unpack_from(buffer, pos)
        topic_pos = pos + BODY_POS + body_length
        if sys_flag & _HOSTS_V6:
            topic_pos, body_length = _behind_body_v6(buffer, pos, sys_flag)
        # A broken length may point anywhere, also in front of the buffer, where Python counts from the end.
        if total_size != size_bytes or body_length < 0:
            return -1
        if magic == MESSAGE_MAGIC_CODE:
            start: int = topic_pos + 3 + buffer[topic_pos]
        elif magic == MESSAGE_MAGIC_CODE_V2:
            start = topic_pos + 4 + _SHORT.unpack_from(buffer, topic_pos)[0]
        else:
            return -1
        return start if start <= pos + size_bytes else -1
    except (error, IndexError):
        return -1


def _behind_body_v6(buffer: Buffer, pos: int, sys_flag: int) -> tuple[int, int]:
    """Where the topic's length is, and how long the body."""
    hosts = (sys_flag & _BORN_V6 != 0) + (sys_flag & _STORE_V6 != 0)
    body_pos = pos + BODY_POS + hosts * HOST_V6_EXTRA_BYTES
    (body_length,) = _LENGTH.unpack_from(buffer, body_pos - _LENGTH.size)
    return body_pos + body_length, body_length


class PropertyFinder:
    """Finds the values of a few names in the bytes of property strings.

    >>> find = PropertyFinder(["TAGS", "KEYS"])
    >>> raw = b"KEYS\\x01order-1\\x02WAIT\\x01true\\x02"
    >>> find.values(raw, 0, len(raw))
    [None, 'order-1']
    """

    __slots__ = ("_names", "_searches")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        is_few = len(self._names) <= _MAX_SEARCHES
        self._searches = tuple(_searches(name) for name in self._names) if is_few else None

    def values(self, buffer: Buffer, start: int, end: int) -> list[str | None]:
        """The value of each name in the string from `start` to `end`; None where it is absent."""
        if self._searches is None:
            properties = decode_properties(properties_from_bytes(bytes(buffer[start:end])))
            return [properties.get(name) for name in self._names]
        # Written out, because this is most of what a filter costs.
        values: list[str | None] = []
        for find_all, match_first in self._searches:
            if found := find_all(buffer, start, end):
                values.append(found[-1].decode("utf-8", "replace"))
            elif first := match_first(buffer, start, end):
                values.append(first[1].decode("utf-8", "replace"))
            else:
                values.append(None)
        return values


def _searches(name: str) -> tuple[_FindAll, _Match]:
    """For pairs behind another one, and for a pair that is the first."""
    pair = re.escape(name.encode("utf-8", "replace")) + rb"\x01([^\x02]+)"
    return re.compile(rb"\x02" + pair).findall, re.compile(pair).match
