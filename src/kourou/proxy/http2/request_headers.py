"""The head of a call, from the header fields of its request.

Clients repeat the names of their fields call after call: a sequence of names is checked once. Names of
headers that break HTTP/2 reset the stream (MalformedRequestError), what gRPC does not allow ends the call
with a status.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.proxy.http2.call import GrpcCode
from kourou.proxy.http2.hpack import Field
from kourou.proxy.http2.messages import ENCODINGS, IDENTITY, CallError

_FIELD_OVERHEAD: Final = 32
_PSEUDO: Final = frozenset({":method", ":scheme", ":path", ":authority"})
_REQUIRED: Final = (":method", ":scheme", ":path")
_CONNECTION_SPECIFIC: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)
_CONTENT_TYPE: Final = "application/grpc"
_WITH_PARTS: Final = (f"{_CONTENT_TYPE}+", f"{_CONTENT_TYPE};")
_MAX_SHAPES: Final = 1_024
_MAX_TIMEOUT_DIGITS: Final = 8
_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

# Sequences of names that are well-formed, and their size as header lists count it.
_shapes: Final[dict[tuple[str, ...], int]] = {}


class MalformedRequestError(ProtocolError):
    """Header fields that HTTP/2 does not allow; the stream is reset with PROTOCOL_ERROR."""


class HttpStatusError(ProtocolError):
    """A request that is not gRPC's; answered with this status of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RequestHead(NamedTuple):
    """What the header fields say of a call."""

    path: str
    authority: str
    metadata: dict[str, str]
    timeout_s: float | None
    encoding: str
    size_bytes: int
    """As header lists count it."""


def read_request_head(fields: list[Field], max_list_bytes: int) -> RequestHead:
    """Check the fields of a request; raises MalformedRequestError, HttpStatusError or CallError."""
    metadata = dict(fields)
    names = tuple(metadata)
    if len(names) != len(fields):
        metadata = _joined(fields)
    names_bytes = _shapes.get(names)
    if names_bytes is None:
        names_bytes = _check_names(names, fields)
    size = names_bytes + len("".join(metadata.values()))
    if size > max_list_bytes:
        raise CallError(
            GrpcCode.RESOURCE_EXHAUSTED, f"headers of {size} bytes; at most {max_list_bytes} are allowed"
        )
    method, path = metadata.pop(":method"), metadata.pop(":path")
    if not path:
        raise MalformedRequestError("the pseudo header :path is empty")
    if metadata.get("te", "trailers") != "trailers":
        raise MalformedRequestError("the header te is not trailers")
    del metadata[":scheme"]
    if method != "POST":
        raise HttpStatusError(405, "gRPC calls are POST requests")
    content_type = metadata.get("content-type", "")
    if content_type != _CONTENT_TYPE and not content_type.startswith(_WITH_PARTS):
        raise HttpStatusError(415, "this port speaks gRPC; the content type is application/grpc")
    encoding = metadata.get("grpc-encoding", IDENTITY)
    if encoding not in ENCODINGS:
        raise CallError(
            GrpcCode.UNIMPLEMENTED, f"grpc-encoding {encoding[:64]!r} is not supported; use identity or gzip"
        )
    timeout = metadata.get("grpc-timeout")
    return RequestHead(
        path,
        metadata.pop(":authority", ""),
        metadata,
        None if timeout is None else read_timeout_s(timeout),
        encoding,
        size,
    )


def read_timeout_s(text: str) -> float:
    """Seconds of a `grpc-timeout`; raises CallError.

    >>> read_timeout_s("3S"), read_timeout_s("1500m")
    (3.0, 1.5)
    """
    digits, unit = text[:-1], _UNITS_S.get(text[-1:])
    if unit is None or not digits.isdecimal() or not digits.isascii() or len(digits) > _MAX_TIMEOUT_DIGITS:
        raise CallError(GrpcCode.INTERNAL, f"grpc-timeout {text[:64]!r} is not up to 8 digits and a unit")
    return int(digits) * unit


def _joined(fields: list[Field]) -> dict[str, str]:
    """Values of a repeated name, joined."""
    metadata: dict[str, str] = {}
    for name, value in fields:
        if name not in metadata:
            metadata[name] = value
        elif name in _PSEUDO:
            raise MalformedRequestError(f"the pseudo header {name} is repeated")
        else:
            metadata[name] += f",{value}"
    return metadata


def _check_names(names: tuple[str, ...], fields: list[Field]) -> int:
    for name in _REQUIRED:
        if name not in names:
            raise MalformedRequestError(f"the pseudo header {name} is missing")
    seen_regular = False
    for name, _ in fields:
        if name.startswith(":"):
            if name not in _PSEUDO:
                raise MalformedRequestError(f"{name} is no pseudo header of a request")
            if seen_regular:
                raise MalformedRequestError(f"the pseudo header {name} follows other headers")
            continue
        seen_regular = True
        if name in _CONNECTION_SPECIFIC:
            raise MalformedRequestError(f"the header {name} does not exist in HTTP/2")
    size = sum(_FIELD_OVERHEAD + len(name) for name in names)
    if len(_shapes) >= _MAX_SHAPES:
        _shapes.clear()
    if len(names) == len(fields):
        _shapes[names] = size
    return size
