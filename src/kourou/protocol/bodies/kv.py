"""Tables of names and texts."""

from __future__ import annotations

from kourou.protocol.bodies.shape import Body


class KVTable(Body):
    """One table (28, 219, 103 response)."""

    table: dict[str, str] = {}


class KVConfigSerializeWrapper(Body):
    """The name server's KV configuration by namespace, as its `kvConfig.json` holds it."""

    config_table: dict[str, dict[str, str]] = {}
