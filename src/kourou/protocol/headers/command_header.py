"""CommandHeader: what all typed headers share.

A header is one Struct: attributes in snake_case, wire names in RocketMQ's camelCase, derived from the
attribute unless a class says otherwise. A field without default is one that the peer must send; an
optional one is None when not sent, except where RocketMQ has another default. No attribute is called
`offset` alone: it says which of the offsets it is, and the wire name stays `offset`.

Java writes no field of a header that is null, and reads fields it does not know without complaint;
so do we.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from kourou.protocol.layout import I4, I8

Int32 = Annotated[int, msgspec.Meta(ge=I4.low, le=I4.high)]
"""Java's int: a number beyond it is refused here, not when it is packed somewhere else."""

Int64 = Annotated[int, msgspec.Meta(ge=I8.low, le=I8.high)]
"""Java's long."""


class CommandHeader(msgspec.Struct, kw_only=True, gc=False, rename="camel"):
    """Base of all typed headers. They hold only text, numbers and booleans, so no cycle is possible."""


def wire_names(**special: str) -> Callable[[str], str]:
    """camelCase for a Struct's `rename`, with other names for some attributes."""

    def rename(attribute: str) -> str:
        return special.get(attribute) or _camel_case(attribute)

    return rename


def _camel_case(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(other.capitalize() for other in others)
