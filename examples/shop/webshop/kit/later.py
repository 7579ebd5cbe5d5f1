"""LaterRows: rows that are written in the background, and whose loss does no harm: measurements."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, LiteralString

from webshop.kit.database import Database

_INTERVAL_S: Final = 0.5
_MAX_ROWS: Final = 10_000


class LaterRows:
    """Rows that wait to be inserted. While the database is away the oldest are dropped, and a killed process
    loses what it has."""

    def __init__(self, insert: LiteralString) -> None:
        self._insert: LiteralString = insert
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=_MAX_ROWS)

    def add(self, *values: Any) -> None:
        """Have a row inserted soon."""
        self._rows.append(values)

    async def write(self, database: Database) -> None:
        """Insert the rows that come, until this is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            rows = list(self._rows)
            if rows:
                async with database.transaction() as connection:
                    await connection.cursor().executemany(self._insert, rows)
                for _ in rows:
                    self._rows.popleft()
