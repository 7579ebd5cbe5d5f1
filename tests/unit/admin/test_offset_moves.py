"""Moves of offsets: messages that are skipped and read again."""

from __future__ import annotations

import pytest

from kourou.admin.offset_moves import QueueMove


@pytest.mark.parametrize(
    ("old", "new", "skipped", "repeated"),
    [
        (30, 50, 20, 0),
        (50, 30, 0, 20),
        (40, 40, 0, 0),
        (5, 50, 40, 0),  # of those before 10, nothing is left to skip
        (50, 10, 0, 40),
        (None, 90, 0, 0),  # where members would begin is not known
    ],
)
def test_skipped_and_repeated(old: int | None, new: int, skipped: int, repeated: int) -> None:
    move = QueueMove("broker-a", "127.0.0.1:1", 0, 10, 100, old, new)
    assert (move.skipped, move.repeated) == (skipped, repeated)
