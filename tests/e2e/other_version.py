"""Another version of Kourou, for the rolling upgrade of a master and its slave: `python -m` with the
arguments of `kourou`. It has another number, announces an extension that this one does not know, has a later
version of the HA link with more fields in its hello, and does not know one of today's extensions.
"""

from __future__ import annotations

import sys

import msgspec

import kourou
from kourou.protocol import features, ha

NUMBER = "9.9.9"


class LaterSlaveHello(ha.SlaveHello, frozen=True, kw_only=True, rename="camel"):
    """With fields that this version does not have."""

    compression: str = "zstd"
    limits: dict[str, int] = msgspec.field(default_factory=lambda: {"window": 1 << 20})


class LaterMasterHello(ha.MasterHello, frozen=True, kw_only=True, rename="camel"):
    """With fields that this version does not have."""

    compression: str = "zstd"
    learners: tuple[int, ...] = (7, 8)


_LATER = {ha.SlaveHello: LaterSlaveHello, ha.MasterHello: LaterMasterHello}


def become_other() -> None:
    """Change what the modules of the broker import later."""
    encode, announce, parse = ha.encode_hello, features.format_features, features.parse_features

    def encode_hello(hello: ha.SlaveHello | ha.MasterHello) -> bytes:
        fields = msgspec.structs.asdict(hello)
        return encode(_LATER[type(hello)](**{**fields, "version": ha.HA_VERSION + 1}))

    kourou.__version__ = NUMBER
    ha.encode_hello = encode_hello
    features.format_features = lambda known: f"{announce(set(known) - {features.Feature.LARGE_PULL})},other"
    features.parse_features = lambda text: parse(text) - {features.Feature.LARGE_PULL}


if __name__ == "__main__":
    become_other()
    from kourou.cli.main import main

    sys.exit(main())
