"""Errors of the sink, with the location of the row."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.errors import KourouError


@dataclass(frozen=True, slots=True)
class RowLocation:
    """The location of a row: its index within its partition, from 0, and what identifies it for a user."""

    partition: int
    row: int
    topic: str | None
    keys: str | None = None
    last_row: int | None = None
    """The last row, for rows that were sent together."""

    def __str__(self) -> str:
        if self.last_row is None or self.last_row == self.row:
            rows = f"row {self.row}"
        else:
            rows = f"rows {self.row} to {self.last_row}"
        keys = f", keys {self.keys!r}" if self.keys else ""
        topic = "no topic" if self.topic is None else f"topic {self.topic!r}"
        return f"partition {self.partition}, {rows}, {topic}{keys}"


class SinkRowError(KourouError):
    """A row was not written. Rows before and after it may have been: writing them again duplicates them."""

    def __init__(self, location: RowLocation, reason: str) -> None:
        super().__init__(f"{location}: {reason}")
        self.location = location
        self.reason = reason

    def __reduce__(self) -> tuple[type[SinkRowError], tuple[RowLocation, str]]:
        return type(self), (self.location, self.reason)


class RowRefusedError(SinkRowError):
    """A row that no broker accepts, on any attempt; `errorTopic` collects such rows."""


class SinkBatchError(KourouError):
    """A batch that cannot be written exactly once: nothing of it is visible, or all of it."""
