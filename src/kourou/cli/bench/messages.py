"""Shared by the loads of `kourou bench`: the connection options and the messages they send."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kourou.client.core.credentials import Credentials
from kourou.client.core.settings import ClientOptions
from kourou.client.producer.producer_options import ProducerKeywords
from kourou.clock import wall_ms
from kourou.protocol.compression import CompressionType
from kourou.protocol.message import Message

# No body is this large, so none is compressed.
_NEVER_BYTES: Final = 2**31 - 1
_SIGNS: Final = string.ascii_letters + string.digits
# The size of one property, as in Apache's programs.
_PROPERTY_BYTES: Final = 16


@dataclass(frozen=True, kw_only=True)
class Target:
    """Topic, name servers and credentials of a load."""

    topic: str
    namesrv: str | None = None
    credentials: Credentials | None = None
    trace: bool = False

    def client_options(self) -> ClientOptions:
        """Options of every client."""
        return {"namesrv": self.namesrv, "credentials": self.credentials}

    def shown(self) -> dict[str, object]:
        """For the result, without secrets."""
        return {
            "topic": self.topic,
            "namesrvAddr": self.namesrv,
            "msgTraceEnable": self.trace,
            "aclEnable": self.credentials is not None,
        }


@dataclass(frozen=True, kw_only=True)
class Compression:
    """Compression of bodies of at least `over_bytes`."""

    enabled: bool = False
    kind: CompressionType = CompressionType.ZLIB
    level: int = 5
    over_bytes: int = 4096

    def producer_options(self) -> ProducerKeywords:
        """The options of a producer for it."""
        if not self.enabled:
            return {"compress_over_bytes": _NEVER_BYTES}
        return {
            "compression": self.kind,
            "compress_level": self.level,
            "compress_over_bytes": self.over_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The form of each message."""

    size_bytes: int = 128
    with_key: bool = False
    tag_count: int = 0
    property_bytes: int = 0
    delay_level: int = 0


@dataclass
class MessageMaker:
    """Makes messages of one shape, all with the same body."""

    topic: str
    shape: Shape
    _body: bytes = field(init=False)
    _properties: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._body = random_text(self.shape.size_bytes).encode()
        self._properties = _properties_of(self.shape.property_bytes)

    def make(self) -> Message:
        shape = self.shape
        if not (shape.with_key or shape.tag_count or shape.delay_level or self._properties):
            return Message(self.topic, self._body)
        now_ms = wall_ms()
        return Message(
            self.topic,
            self._body,
            # Seconds, so that many messages share a key, as in Apache's program.
            keys=str(now_ms // 1000) if shape.with_key else (),
            tags=f"tag{now_ms % shape.tag_count}" if shape.tag_count else None,
            delay_time_level=shape.delay_level,
            properties=self._properties,
        )


def random_text(size: int) -> str:
    """`size` random letters and digits."""
    return "".join(random.choices(_SIGNS, k=size))


def _properties_of(size_bytes: int) -> dict[str, str]:
    """Properties whose names and values have this size in total."""
    properties: dict[str, str] = {}
    left = size_bytes
    while left > 0:
        name = f"p{len(properties)}"
        value_bytes = max(1, min(_PROPERTY_BYTES, left) - len(name))
        properties[name] = random_text(value_bytes)
        left -= len(name) + value_bytes
    return properties
