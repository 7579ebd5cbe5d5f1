"""The first offset of a time is found whatever a broker guesses, in few looks."""

from __future__ import annotations

from bisect import bisect_left

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from kourou.spark.source.source_client import first_stored_at  # noqa: E402


class Queue:
    """Times of messages from offset `low` on."""

    def __init__(self, low: int, times: list[int]) -> None:
        self.low = low
        self.times = times
        self.looks = 0

    async def stored_at(self, offset: int) -> int | None:
        self.looks += 1
        return self.times[offset - self.low]


@given(st.lists(st.integers(0, 30), max_size=200).map(sorted), st.integers(-1, 31), st.integers(-5, 300))
async def test_the_first_of_a_time(times: list[int], wanted: int, guess: int) -> None:
    queue = Queue(50, times)
    found = await first_stored_at(queue.stored_at, wanted, 50, 50 + len(times), guess)
    assert found == 50 + bisect_left(times, wanted)
    assert queue.looks <= 2 * len(times).bit_length() + 2


async def test_a_right_guess_takes_two_looks() -> None:
    queue = Queue(0, list(range(100_000)))
    assert await first_stored_at(queue.stored_at, 70_000, 0, 100_000, 70_000) == 70_000
    assert queue.looks == 2


async def test_what_cannot_be_looked_at_is_late() -> None:
    async def nothing(_: int) -> int | None:
        return None

    assert await first_stored_at(nothing, 5, 3, 9, 6) == 3
