"""A broker's table of settings, read in pages: 5.x brokers send a large one in parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kourou.protocol.bodies import DataVersion, encode_body

PAGE_SIZE: Final = 2_000
"""The number of entries per request."""

ConfigT = TypeVar("ConfigT")


async def read_config_pages(
    read: Callable[[int, str], Awaitable[tuple[dict[str, ConfigT], DataVersion, int | None]]],
) -> dict[str, ConfigT]:
    """All entries of a table, by name.

    `read` requests the entries after the first ones, of a version ("" at first). It returns them, their
    version, and the total number; None from a broker that sends all at once.
    """
    found: dict[str, ConfigT] = {}
    version = ""
    while True:
        known = len(found)
        entries, data_version, total = await read(known, version)
        found |= entries
        if total is None or len(found) >= total or len(found) == known:
            return found
        version = encode_body(data_version).decode()
