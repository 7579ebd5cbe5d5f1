"""The answer to a send whose header was binary: a template, as the JSON one (send_answer.py).

The bytes are those that header_binary.py would make of a SendMessageResponseHeader. Texts of up to 255 bytes
fit, since the last byte of a length is all that differs then.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kourou.protocol.codes import CommandFlag, LanguageCode, SerializeType
from kourou.protocol.header_binary import HEAD_WITHOUT_REMARK, encode_binary_head
from kourou.protocol.versions import CURRENT_VERSION

_PREFIX: Final = Struct(">II")
_HEAD_BYTES: Final = HEAD_WITHOUT_REMARK.size
_MARK: Final = SerializeType.ROCKETMQ.value << 24
_PYTHON: Final = LanguageCode.PYTHON.value
_RESPONSE: Final = CommandFlag.RESPONSE.value
_MAX_ID_BYTES: Final = 255
# A length and a text, both to be filled in.
_SHORT_TEXT: Final = b"\0\0\0%c%b"

_pack_prefix = _PREFIX.pack
_pack_head = HEAD_WITHOUT_REMARK.pack


class BinarySendAnswer:
    """Makes the answers of one broker."""

    __slots__ = ("_common", "_template")

    def __init__(self, id_prefix: str, region: str, *, trace_on: bool) -> None:
        self._common = id_prefix, region, trace_on
        self._template = _fields(*self._common, number=_SHORT_TEXT, uniq_key=_SHORT_TEXT)

    def kernel_template(self, *, has_id: bool) -> bytes:
        """A whole header with holes for the phy_offset, the queue_id, the queue_offset and, where there is
        one, the id of the message. The kernel puts the length of each but the first before it; it fills in
        the opaque and the length of all fields."""
        head = encode_binary_head(0, _PYTHON, CURRENT_VERSION, 0, _RESPONSE, None, None)
        fields = _fields(*self._common, number=b"%d", uniq_key=b"%s" if has_id else None)
        return head.replace(b"%", b"%%") + fields

    def frame(self, opaque: int, phy_offset: int, queue_id: int, queue_offset: int, uniq_key: bytes) -> bytes:
        """The whole frame, for one message that is stored; empty where the id does not fit."""
        if not 0 < len(uniq_key) <= _MAX_ID_BYTES:
            return b""
        queue_text, offset_text = b"%d" % queue_id, b"%d" % queue_offset
        fields = self._template % (
            phy_offset,
            len(queue_text),
            queue_text,
            len(offset_text),
            offset_text,
            len(uniq_key),
            uniq_key,
        )
        fields_bytes = len(fields)
        header_bytes = _HEAD_BYTES + fields_bytes
        prefix = _pack_prefix(header_bytes + 4, _MARK | header_bytes)
        return prefix + _pack_head(0, _PYTHON, CURRENT_VERSION, opaque, _RESPONSE, 0, fields_bytes) + fields


def _fields(id_prefix: str, region: str, trace_on: bool, *, number: bytes, uniq_key: bytes | None) -> bytes:
    """The fields of an answer, with holes for numbers and for the id of the message, if it has one."""
    msg_id = _text(f"{id_prefix}{0:016X}").removesuffix(b"%016d" % 0) + b"%016X"
    return b"".join(
        (
            _name("msgId") + msg_id,
            _name("queueId") + number,
            _name("queueOffset") + number,
            b"" if uniq_key is None else _name("transactionId") + uniq_key,
            _name("MSG_REGION") + _text(region),
            _name("TRACE_ON") + _text("true" if trace_on else "false"),
        )
    )


def _name(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


def _text(text: str) -> bytes:
    """A text and its length, as they stand in a template."""
    utf8 = text.encode()
    return (len(utf8).to_bytes(4, "big") + utf8).replace(b"%", b"%%")
