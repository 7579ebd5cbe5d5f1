"""SendRequest: one message or one batch to send; SendFrames: the bytes of its request.

The header of a send (SEND_MESSAGE_V2 and its variants) is encoded for every attempt of every message, so it
is composed of parts that are constant for a queue, and written directly as JSON. A signed request takes the
slow path, as all others do. SequencedRequest: of an idempotent producer. Not here: sending it (sends.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kourou.client.core.credentials import Credentials
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.codes import CommandFlag, LanguageCode, SerializeType
from kourou.protocol.ext_fields import ext_fields_of
from kourou.protocol.frame import encode_frame
from kourou.protocol.header_json import encode_json_head
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.layout import FRAME
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY, format_sequence
from kourou.protocol.properties import (
    properties_from_bytes,
    properties_to_bytes,
    property_pair,
    remove_property,
)
from kourou.protocol.versions import CURRENT_VERSION

ONEWAY: Final = CommandFlag.ONEWAY.value
_pack_prefix: Final = FRAME.struct().pack
_json: Final = msgspec.json.Encoder().encode
_HEADER: Final = (
    b'{"code":%%d,%%b"f":"%%d","g":"%%d","h":"%%d","i":%%b,%%b},"flag":%%d,"language":"PYTHON",'
    b'"opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
)
_TAILS: Final = (b'"j":"0","k":"false","m":"false"', b'"j":"0","k":"false","m":"true"')
_SEQUENCED: Final = b',"kourouSequenced":"true"'
_SEQUENCED_TAILS: Final = tuple(tail + _SEQUENCED for tail in _TAILS)
# More queues than a client writes to; beyond that the cache is cleared.
_MAX_PIECES: Final = 10_000


class SendRequest:
    """The content of a request, the same for every broker. `topic` has its namespace, `body` is compressed.

    `extra_properties` are those at the end of `properties` that the message itself does not have.
    """

    __slots__ = (
        "batch",
        "body",
        "born_timestamp",
        "code",
        "extra_properties",
        "flag",
        "properties",
        "raw_properties",
        "sys_flag",
        "tail",
        "topic",
        "uniq_key",
    )

    def __init__(
        self,
        code: int,
        topic: str,
        body: bytes | memoryview,
        properties: str,
        uniq_key: str,
        sys_flag: int,
        flag: int,
        born_timestamp: int,
        extra_properties: str = "",
        batch: bool = False,
    ) -> None:
        self.code = code
        self.topic = topic
        self.body = body
        self.extra_properties = extra_properties
        self.properties = properties
        self.raw_properties = _json(properties)
        self.uniq_key = uniq_key
        self.sys_flag = sys_flag
        self.flag = flag
        self.born_timestamp = born_timestamp
        self.batch = batch
        self.tail = _TAILS[batch]
        """The last fields of the header."""

    @property
    def is_sequenced(self) -> bool:
        """Whether its messages carry sequences of an idempotent producer."""
        return self.tail.endswith(_SEQUENCED)

    def set_properties(self, properties: str) -> None:
        """Replace the property string."""
        self.properties = properties
        self.raw_properties = _json(properties)


class SequencedRequest(SendRequest):
    """A request of an idempotent producer: it gets its sequences when it is written to a queue."""

    # Class attributes and no constructor: most requests need neither batch nor sequences of the application.
    _pair = ""
    entries: Sequence[BatchEntry] = ()
    """Of a batch: its messages, without sequences."""
    sequences: Sequence[int] | None = None
    """Those that the application gave."""

    def set_sequences(self, identity: str, sequences: Sequence[int]) -> None:
        """Let the messages carry these sequences, in place of others."""
        if self.batch:
            self.body = encode_batch_entries(
                entry._replace(
                    raw_properties=_without_sequence(entry.raw_properties) + _pair(identity, each).encode()
                )
                for entry, each in zip(self.entries, sequences, strict=True)
            )
        else:
            self._replace_pair(_pair(identity, sequences[0]))
        self.tail = _SEQUENCED_TAILS[self.batch]

    def remove_sequences(self) -> None:
        """Let the messages carry no sequences: for a broker that does not know them."""
        if self.batch:
            self.body = encode_batch_entries(self.entries)
        else:
            self._replace_pair("")
        self.tail = _TAILS[self.batch]

    def _replace_pair(self, pair: str) -> None:
        # At the end, also of the extra properties: hooks let the others be encoded again.
        properties = self.properties.removesuffix(self._pair)
        if SEQUENCE_PROPERTY in properties:  # of a message that was received and is forwarded
            properties = remove_property(properties, SEQUENCE_PROPERTY)
        self.extra_properties = self.extra_properties.removesuffix(self._pair) + pair
        self._pair = pair
        self.set_properties(properties + pair)


def _pair(identity: str, sequence: int) -> str:
    return property_pair(SEQUENCE_PROPERTY, format_sequence(identity, sequence))


def _without_sequence(raw_properties: bytes) -> bytes:
    if SEQUENCE_PROPERTY.encode() not in raw_properties:
        return raw_properties
    return properties_to_bytes(remove_property(properties_from_bytes(raw_properties), SEQUENCE_PROPERTY))


class SendFrames:
    """Encodes the requests of one producer."""

    __slots__ = ("_create_topic_key", "_credentials", "_group", "_pieces", "_queue_nums")

    def __init__(
        self,
        group: str,
        create_topic_key: str,
        default_topic_queue_nums: int,
        credentials: Credentials | None = None,
    ) -> None:
        self._group = group
        self._create_topic_key = create_topic_key
        self._queue_nums = default_topic_queue_nums
        self._credentials = credentials
        self._pieces: dict[MessageQueue, bytes] = {}

    def head(self, request: SendRequest, queue: MessageQueue, opaque: int, command_flag: int = 0) -> bytes:
        """The frame of `request` to `queue`, up to its body."""
        if self._credentials is not None:
            return self._signed(request, queue, opaque, command_flag, self._credentials)
        header = _HEADER % (
            request.code,
            self._pieces.get(queue) or self._piece(queue),
            request.sys_flag,
            request.born_timestamp,
            request.flag,
            request.raw_properties,
            request.tail,
            command_flag,
            opaque,
        )
        size = len(header)
        return _pack_prefix(4 + size + len(request.body), size) + header

    def _piece(self, queue: MessageQueue) -> bytes:
        """The fields that are constant for a queue."""
        if len(self._pieces) >= _MAX_PIECES:
            self._pieces.clear()
        fields = {
            "a": self._group,
            "b": queue.topic,
            "c": self._create_topic_key,
            "d": str(self._queue_nums),
            "e": str(queue.queue_id),
            "n": queue.broker_name,
        }
        self._pieces[queue] = piece = b'"extFields":' + _json(fields)[:-1] + b","
        return piece

    def _signed(
        self,
        request: SendRequest,
        queue: MessageQueue,
        opaque: int,
        command_flag: int,
        credentials: Credentials,
    ) -> bytes:
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=self._create_topic_key,
            default_topic_queue_nums=self._queue_nums,
            queue_id=queue.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties=request.properties,
            batch=request.batch,
            broker_name=queue.broker_name,
            kourou_sequenced=True if request.is_sequenced else None,
        )
        fields = ext_fields_of(header)
        credentials.sign(fields, request.body)
        raw = encode_json_head(
            request.code, LanguageCode.PYTHON.value, CURRENT_VERSION, opaque, command_flag, None, fields
        )
        # The length includes the body, which is written after it.
        frame = encode_frame(SerializeType.JSON.value, raw)
        return _pack_prefix(4 + len(raw) + len(request.body), len(raw)) + frame[8:]
