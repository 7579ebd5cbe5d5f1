"""The position of a page of messages as text for URLs: compressed JSON, URL-safe Base64.

It contains offsets only. What is read from it is checked like any other input.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Annotated, Final

import msgspec

from kourou.admin.messages.message_pages import PagePosition, QueueRange
from kourou.console.api_errors import ApiError, bad_input
from kourou.protocol.bodies import MessageQueue

_MAX_TEXT_BYTES: Final = 1 << 20
_MAX_QUEUES: Final = 10_000
"""Each may be a request to its broker."""
_Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    is_newest_first: bool
    queues: dict[str, list[tuple[_Offset, _Offset, _Offset]]]
    """By broker: queue id, begin and end offset."""


def encode_cursor(topic: str, position: PagePosition | None, *, is_newest_first: bool) -> str | None:
    """A position as text; None for the end."""
    if position is None:
        return None
    queues: dict[str, list[tuple[int, int, int]]] = {}
    for queue, rest in position.items():
        place = (queue.queue_id, rest.begin_offset, rest.end_offset)
        queues.setdefault(queue.broker_name, []).append(place)
    text = msgspec.json.encode(_Cursor(topic, is_newest_first, queues))
    return base64.urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


def decode_cursor(text: str, topic: str, *, is_newest_first: bool) -> PagePosition | None:
    """The position of a text; None if it is empty, ApiError 400 if it is not one of this list."""
    if not text:
        return None
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        raw = zlib.decompressobj().decompress(packed, _MAX_TEXT_BYTES)
        cursor = msgspec.json.decode(raw, type=_Cursor)
    except (binascii.Error, zlib.error, ValueError, msgspec.MsgspecError):
        raise _refused() from None
    if sum(map(len, cursor.queues.values())) > _MAX_QUEUES:
        raise _refused()
    if cursor.topic != topic or cursor.is_newest_first is not is_newest_first:
        raise _refused()
    return {
        MessageQueue(topic, broker_name, queue_id): QueueRange(begin, end)
        for broker_name, places in cursor.queues.items()
        for queue_id, begin, end in places
    }


def _refused() -> ApiError:
    return bad_input("cursor", "it is not the `next` of a page of this list; begin with the first page")
