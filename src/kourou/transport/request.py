"""Request: one command from the peer, and the way to respond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from kourou.errors import SYSTEM_ERROR, KourouError, RequestError
from kourou.protocol.codes import SerializeType
from kourou.protocol.command import (
    CommandHead,
    decode_ext,
    encode_response,
    ext_dict,
    ext_fields_of,
)
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.request_head import decode_fields
from kourou.protocol.signed_send import SignedSend, read_signed_send

if TYPE_CHECKING:
    from kourou.transport.connection import Connection

HeaderT = TypeVar("HeaderT", bound=msgspec.Struct)

_ONEWAY = 2
_JSON = SerializeType.JSON.value


class Request:
    """A pending request. Its handler responds once, now or later, or never."""

    __slots__ = (
        "_ext_fields",
        "answered",
        "arrived_s",
        "body",
        "code",
        "connection",
        "head",
        "meter",
        "opaque",
        "raw_header",
        "serialize_type",
    )

    def __init__(
        self,
        connection: Connection,
        serialize_type: int,
        head: CommandHead,
        body: bytes,
        raw_header: bytes = b"",
    ) -> None:
        self.connection = connection
        self.serialize_type = serialize_type
        self.head = head
        self.code = head.code
        self.opaque = head.opaque
        self.body = body
        self.raw_header = raw_header
        self.answered = False
        self._ext_fields: dict[str, str] | None = None
        # What its response is reported to (RequestMeter.begin); None: nothing.
        self.meter: RequestMeter | None = None
        self.arrived_s = 0.0

    @property
    def version(self) -> int:
        """The sender's version number (protocol.versions)."""
        return self.head.version

    @property
    def is_oneway(self) -> bool:
        """True when the sender expects no response."""
        return bool(self.head.flag & _ONEWAY)

    @property
    def ext_fields(self) -> dict[str, str]:
        """All header fields as text, including unknown ones; read once, not to be changed."""
        fields = self._ext_fields
        if fields is None:
            if isinstance(self.head.ext_fields, msgspec.Struct):  # a typed head has known fields only
                fields = decode_fields(self.serialize_type, self.raw_header)
            else:
                fields = ext_dict(self.head)
            self._ext_fields = fields
        return fields

    def signed_send(self) -> SignedSend | None:
        """What is signed of a send in the usual form, cheaper than by `ext_fields`; None: it has another."""
        if self.serialize_type == _JSON and isinstance(self.head.ext_fields, SendMessageRequestHeaderV2):
            return read_signed_send(self.raw_header)
        return None

    def header(self, header_type: type[HeaderT]) -> HeaderT:
        """The header fields as `header_type`; HeaderFieldError names what is missing or wrong."""
        return decode_ext(self.head, header_type)

    def reply(
        self,
        header: msgspec.Struct | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        code: int = 0,
        remark: str | None = None,
    ) -> None:
        """Respond with a code, header fields and a body. Nothing is sent for a one-way request."""
        assert not self.answered, f"request {self.code} answered twice"
        self.answered = True
        if self.meter is not None:
            self.meter.answered(self, code)
        if self.head.flag & _ONEWAY:
            return
        fields = ext_fields_of(header) if isinstance(header, msgspec.Struct) else header
        self.connection.send(encode_response(self.serialize_type, self.opaque, code, remark, fields, body))

    def error(self, code: int, remark: str) -> None:
        """Respond that the request was rejected or failed."""
        self.reply(code=code, remark=remark)

    def fail(self, error: BaseException) -> None:
        """Respond with the code and text of `error`: the one place that maps errors to responses."""
        if self.answered:
            return
        if isinstance(error, RequestError):
            self.reply(error.ext_fields, code=error.response_code, remark=str(error))
        elif isinstance(error, KourouError):
            self.error(error.response_code, str(error))
        else:
            self.error(SYSTEM_ERROR, f"{type(error).__name__}: {error}")


Processor = Callable[[Request], None]


class RequestMeter(Protocol):
    """Measures how long requests take."""

    def begin(self, request: Request) -> None:
        """A request is to be handled: set its `meter` and when it has arrived."""
        ...

    def answered(self, request: Request, code: int) -> None:
        """A request has its response."""
        ...
