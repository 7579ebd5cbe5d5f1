"""The host that messages of a connection are born at, as records keep it; made once for each connection."""

from __future__ import annotations

from typing import Final

from kourou.protocol.message_id import encode_host
from kourou.transport.addresses import parse_address
from kourou.transport.connection import Connection

BORN_HOST: Final = "bornHost"
"""Where a connection's attributes keep it."""


def record_born_host(connection: Connection) -> bytes:
    """Make it, for a connection that has none yet."""
    host, port = parse_address(connection.remote_address)
    born_host = encode_host(host, port)
    connection.attributes[BORN_HOST] = born_host
    return born_host
