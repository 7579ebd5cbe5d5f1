"""Records as filters see them."""

from __future__ import annotations

import zlib

from kourou.filters import FilterRecord
from kourou.protocol.compression import CompressionType
from kourou.protocol.message_id import encode_host
from kourou.protocol.record import RecordEncoder

_HOST = encode_host("127.0.0.1", 10911)


def record(
    body: bytes = b"body", properties: bytes = b"TAGS\x01a\x02", *, is_compressed: bool = False
) -> FilterRecord:
    """A record with this body."""
    return FilterRecord(memoryview(raw_record(body, properties, is_compressed=is_compressed)))


def raw_record(
    body: bytes = b"body", properties: bytes = b"TAGS\x01a\x02", *, is_compressed: bool = False
) -> bytes:
    """The same as bytes."""
    parts = RecordEncoder("T", 3, _HOST).parts(
        zlib.compress(body) if is_compressed else body,
        properties,
        queue_offset=7,
        phy_offset=1000,
        store_timestamp=2,
        born_timestamp=1,
        born_host=_HOST,
        sys_flag=CompressionType.ZLIB.sys_flag if is_compressed else 0,
        flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    return b"".join(parts)
