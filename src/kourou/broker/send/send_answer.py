"""The answer to a send: made for every message, so it is a template with holes.

Only an answer with something unusual in it (a failure, an id that JSON would have to escape) takes the slow
path. The bytes of the binary template are those that header_binary.py would make; texts of up to 255 bytes
fit, since the last byte of a length is all that differs then.
"""

from __future__ import annotations

from struct import pack
from typing import Final

import msgspec

from kourou.protocol.codes import CommandFlag, LanguageCode, SerializeType
from kourou.protocol.command import decode_head, encode_response, ext_dict
from kourou.protocol.frame import RawFrame
from kourou.protocol.header_binary import HEAD_WITHOUT_REMARK, encode_binary_head
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.layout import FRAME
from kourou.protocol.versions import CURRENT_VERSION
from kourou.store.kernel import ResponseTemplates
from kourou.store.log.put_status import PutStatus
from kourou.transport.request import Request

_PREFIX: Final = FRAME.struct()
_HEAD_BYTES: Final = HEAD_WITHOUT_REMARK.size
_MARK: Final = SerializeType.ROCKETMQ.value << 24
_PYTHON: Final = LanguageCode.PYTHON.value
_RESPONSE: Final = CommandFlag.RESPONSE.value
_MAX_ID_BYTES: Final = 255
# A length and a text, both to be filled in.
_SHORT_TEXT: Final = b"\0\0\0%c%b"

_pack_prefix = _PREFIX.pack
_pack_head = HEAD_WITHOUT_REMARK.pack

_JSON: Final = SerializeType.JSON.value
_PUT_OK: Final = PutStatus.PUT_OK


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


class SendAnswer:
    """Answers the senders of one broker, whose offset ids begin with its `store_host`.

    `kernel_templates` are what the compiled kernel makes its answers of.
    """

    __slots__ = ("_binary", "_id_prefix", "_region", "_template", "_trace_on", "kernel_templates")

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        self._id_prefix = store_host.hex().upper()
        self._region = region
        self._trace_on = trace_on
        self._template = self._make_template(has_id=True)
        self._binary = BinarySendAnswer(self._id_prefix, region, trace_on=trace_on)
        self.kernel_templates: ResponseTemplates = (
            self._make_template(has_id=False),
            self._template,
            self._binary.kernel_template(has_id=False),
            self._binary.kernel_template(has_id=True),
        )

    def _make_template(self, *, has_id: bool) -> bytes:
        """Takes a phy_offset, a queue_id, a queue_offset, the id of the message if it has one, and the
        opaque."""
        region = msgspec.json.encode(self._region).decode().replace("%", "%%")
        trace_on = "true" if self._trace_on else "false"
        transaction_id = ',"transactionId":"%s"' if has_id else ""
        return (
            f'{{"code":0,"extFields":{{"msgId":"{self._id_prefix}%016X","queueId":"%d","queueOffset":"%d"'
            f'{transaction_id},"MSG_REGION":{region},"TRACE_ON":"{trace_on}"}},'
            '"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
            f'"version":{CURRENT_VERSION}}}'
        ).encode()

    def stored(
        self,
        request: Request,
        queue_id: int,
        uniq_key: str,
        status: PutStatus,
        phy_offset: int,
        queue_offset: int,
    ) -> None:
        """Say what became of one message, to a sender that wants to know."""
        # What is alphanumeric, in whatever script, needs no escape in JSON.
        if status is _PUT_OK and uniq_key.isalnum():
            raw_key = uniq_key.encode()
            if request.serialize_type == _JSON:
                header = self._template % (phy_offset, queue_id, queue_offset, raw_key, request.opaque)
                size = len(header)
                frame = _pack_prefix(size + 4, size) + header
            else:
                frame = self._binary.frame(request.opaque, phy_offset, queue_id, queue_offset, raw_key)
            if frame:
                request.answered = True
                if request.meter is not None:
                    request.meter.answered(request, 0)
                request.connection.send(frame)
                return
        self.stored_many(request, queue_id, uniq_key, status, [phy_offset], queue_offset)

    def stored_many(
        self,
        request: Request,
        queue_id: int,
        uniq_key: str,
        status: PutStatus,
        phy_offsets: list[int],
        queue_offset: int,
        *,
        recall_handle: str | None = None,
        original_ids: str | None = None,
        queue_offsets: str | None = None,
    ) -> None:
        """The same for any answer: for a batch with its many ids, for a timer with the handle that
        recalls it, for repeats with what is known of their originals."""
        if not status.is_stored:
            request.error(status.response_code, status.remark)
            return
        request.reply(
            SendMessageResponseHeader(
                msg_id=self._offset_ids(phy_offsets),
                queue_id=queue_id,
                queue_offset=queue_offset,
                transaction_id=uniq_key or None,
                recall_handle=recall_handle,
                msg_region=self._region,
                trace_on=self._trace_on,
                kourou_msg_ids=original_ids,
                kourou_queue_offsets=queue_offsets,
            ),
            code=status.response_code,
            remark=status.name if status is not _PUT_OK else None,
        )

    @staticmethod
    def changed(answer: RawFrame, status: PutStatus) -> bytes:
        """An answer that says that all is well, as one that says otherwise."""
        serialize_type, header, _ = answer
        head = decode_head(serialize_type, header)
        remark, fields = (status.name, ext_dict(head)) if status.is_stored else (status.remark, None)
        return encode_response(serialize_type, head.opaque, status.response_code, remark, fields, b"")

    def _offset_ids(self, phy_offsets: list[int]) -> str:
        """The ids of the records at these places, with commas between them."""
        places = pack(f">{len(phy_offsets)}q", *phy_offsets).hex(",", 8).upper()
        return self._id_prefix + places.replace(",", f",{self._id_prefix}")
