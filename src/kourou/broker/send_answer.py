"""The answer to a send: made for every message, so it is a template with holes.

Only an answer with something unusual in it (a failure, an id that JSON would have to escape) goes the
way of all other answers. So does one with the binary header, where the kernel does not make it.
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Final

import msgspec

from kourou.protocol.codes import CommandFlag, LanguageCode, SerializeType
from kourou.protocol.header_binary import encode_binary_head
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.versions import CURRENT_VERSION
from kourou.store.put_status import PutStatus
from kourou.transport.request import Request

_pack_prefix: Final = Struct(">II").pack
_JSON: Final = SerializeType.JSON.value
_PYTHON: Final = LanguageCode.PYTHON.value
_RESPONSE: Final = CommandFlag.RESPONSE.value
_PUT_OK: Final = PutStatus.PUT_OK


class SendAnswer:
    """Answers the senders of one broker, whose offset ids begin with its `store_host`.

    `template` takes a phy_offset, a queue_id, a queue_offset, the id of the message, and the opaque.
    `binary_template` has holes for the first four; in those for numbers and for the id goes the length of the
    text, too. It is for the kernel, which also fills in the opaque and the length of all fields.
    """

    __slots__ = ("_id_prefix", "_region", "_trace_on", "binary_template", "template")

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        self._id_prefix = store_host.hex().upper()
        self._region = region
        self._trace_on = trace_on
        self.template = self._make_template()
        self.binary_template = self._make_binary_template()

    def _make_template(self) -> bytes:
        region = msgspec.json.encode(self._region).decode().replace("%", "%%")
        trace_on = "true" if self._trace_on else "false"
        return (
            f'{{"code":0,"extFields":{{"MSG_REGION":{region},"TRACE_ON":"{trace_on}",'
            f'"msgId":"{self._id_prefix}%016X","queueId":"%d","queueOffset":"%d","transactionId":"%s"}},'
            '"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
            f'"version":{CURRENT_VERSION}}}'
        ).encode()

    def _make_binary_template(self) -> bytes:
        head = encode_binary_head(0, _PYTHON, CURRENT_VERSION, 0, _RESPONSE, None, None)
        message_id = f"{self._id_prefix}{'0' * 16}".encode()
        return b"".join(
            (
                head.replace(b"%", b"%%"),
                _entry(b"msgId", message_id).removesuffix(b"0" * 16) + b"%016X",
                _entry(b"queueId") + b"%d",
                _entry(b"queueOffset") + b"%d",
                _entry(b"transactionId") + b"%s",
                _entry(b"MSG_REGION", self._region.encode()),
                _entry(b"TRACE_ON", b"true" if self._trace_on else b"false"),
            )
        )

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
        if status is _PUT_OK and request.serialize_type == _JSON and uniq_key.isalnum():
            request.answered = True
            header = self.template % (phy_offset, queue_id, queue_offset, uniq_key.encode(), request.opaque)
            size = len(header)
            request.connection.send(_pack_prefix(size + 4, size) + header)
        else:
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
    ) -> None:
        """The same for any answer: for a batch with its many ids, for a timer with the handle that
        recalls it."""
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
            ),
            code=status.response_code,
            remark=status.name if status is not _PUT_OK else None,
        )

    def _offset_ids(self, phy_offsets: list[int]) -> str:
        """The ids of the records at these places, with commas between them."""
        places = pack(f">{len(phy_offsets)}q", *phy_offsets).hex(",", 8).upper()
        return self._id_prefix + places.replace(",", f",{self._id_prefix}")


def _entry(name: bytes, value: bytes | None = None) -> bytes:
    """One of the extFields of a binary template (header_binary.py); without a value, what is before it."""
    entry = len(name).to_bytes(2, "big") + name
    if value is not None:
        entry += len(value).to_bytes(4, "big") + value
    return entry.replace(b"%", b"%%")
