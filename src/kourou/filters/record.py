"""FilterRecord: what a filter sees of a message; RecordFilter and FilterFactory: what a filter is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias

from kourou.protocol.compression import inflate_body, is_compressed
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst, PropertyFinder
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import properties_start, record_body


class FilterRecord:
    """A stored message: a view of its record, of which a part is decoded when it is asked for."""

    __slots__ = ("_message", "_properties_start", "_record")

    def __init__(self, record: memoryview) -> None:
        self._record = record
        self._properties_start: int | None = None
        self._message: MessageExt | None = None

    @property
    def body(self) -> memoryview:
        """The body as it was sent. Without a copy, unless the producer has compressed it; ProtocolError for
        one that does not inflate."""
        body, sys_flag = record_body(self._record)
        return memoryview(inflate_body(bytes(body), sys_flag)) if is_compressed(sys_flag) else body

    def get_property(self, name: str) -> str | None:
        """A property, found without decoding the others; None where it is absent."""
        if self._properties_start is None:
            self._properties_start = properties_start(self._record, 0, len(self._record))
        (value,) = _finder(name).values(self._record, self._properties_start, len(self._record))
        return value

    @property
    def tags(self) -> str | None:
        """The tag; None without one."""
        return self.get_property(MessageConst.PROPERTY_TAGS)

    @property
    def message(self) -> MessageExt:
        """All of it, decoded: topic, keys, queue, times, hosts."""
        if self._message is None:
            self._message = decode_record(self._record)
        return self._message


@lru_cache(maxsize=256)
def _finder(name: str) -> PropertyFinder:
    return PropertyFinder([name])


class RecordFilter(Protocol):
    """A filter with its parameters."""

    def matches(self, records: Sequence[FilterRecord]) -> Sequence[bool]:
        """Whether the consumer gets each of the records, in their order. Records are valid only during the
        call. Nothing may be kept from one call to the next but caches: any batch may come again."""
        ...


FilterFactory: TypeAlias = Callable[[str], RecordFilter]
"""Makes a filter from the parameters of a subscription; ValueError says what is wrong with them."""
