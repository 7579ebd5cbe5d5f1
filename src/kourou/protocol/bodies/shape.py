"""Body: the base of every shape, and the words its fields are declared with.

A shape is a Struct with snake_case attributes and fastjson's names on the wire. Java requires no
field, so each one here has Java's default. Sets are lists: their order on the wire means nothing,
but keeping it gives back the bytes that came in.
Not here: bytes (codec.py) and the fitting of unusual input (fitting.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A Java int. A larger number would break every Java client the body is passed on to."""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java long."""

V5: Final = msgspec.Meta(extra={"since": 5})
"""Marks a field that RocketMQ 4.x does not have; see `encode_body(v4=True)`."""


class Body(msgspec.Struct, rename="camel"):
    """A request or response body, or a part of one."""


class ReshapedBody(Body):
    """A shape that clients send in more than one form."""

    @classmethod
    def reshape(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        """The tree of any form in the form the fields declare; `tree` itself is not changed."""
        raise NotImplementedError


def renamed(tree: dict[Any, Any], alternates: dict[str, str]) -> dict[Any, Any]:
    """`tree` with each alternate name replaced by the declared one, unless that is there too."""
    extra = {name: tree[other] for other, name in alternates.items() if other in tree and name not in tree}
    return {**tree, **extra} if extra else tree
