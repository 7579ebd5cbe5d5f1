"""What comes next of the messages in hand: high priorities first, and a share for the others."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from kourou.client.core.turns import LOW_SHARE, Turns, WaitingItems


def taken(waiting: WaitingItems[str], count: int) -> list[str]:
    return [waiting.popleft() for _ in range(count)]


def test_without_priorities_the_order_is_that_of_arrival() -> None:
    waiting: WaitingItems[str] = WaitingItems()
    waiting.extend("ab")
    waiting.extend("c")
    assert (len(waiting), bool(waiting)) == (3, True)
    assert taken(waiting, 3) == ["a", "b", "c"]
    assert not waiting
    with pytest.raises(IndexError):
        waiting.popleft()


def test_the_highest_comes_first_and_equals_in_their_order() -> None:
    waiting: WaitingItems[str] = WaitingItems()
    waiting.extend("ab")
    waiting.extend("xy", 3)
    waiting.extend("z", 7)
    assert len(waiting) == 5
    assert taken(waiting, 5) == ["z", "x", "y", "a", "b"]
    assert not waiting


def test_one_of_eight_turns_is_for_lower_ones() -> None:
    waiting: WaitingItems[str] = WaitingItems()
    waiting.extend("l" * 10)
    waiting.extend("h" * 100, 5)
    assert "".join(taken(waiting, 24)) == "hhhhhhhl" * 3


def test_no_level_between_the_highest_and_the_lowest_starves() -> None:
    turns = Turns()
    counts = Counter(turns.next_level((9, 5, 1, 0)) for _ in range(LOW_SHARE * 30))
    assert counts == {9: 210, 5: 10, 1: 10, 0: 10}


def test_a_stream_of_high_ones_that_never_pile_up_leaves_the_share_too() -> None:
    """Each is taken before the next one comes."""
    waiting: WaitingItems[str] = WaitingItems()
    waiting.extend("l" * 10)
    found = ""
    for _ in range(16):
        waiting.extend("h", 5)
        found += waiting.popleft()
    assert found == "hhhhhhhl" * 2


def test_a_high_one_after_low_ones_is_next_however_many_came_before() -> None:
    waiting: WaitingItems[str] = WaitingItems()
    waiting.extend("l" * 100)
    for _ in range(20):
        waiting.extend("h", 5)
        assert taken(waiting, 2) == ["h", "l"]


def test_cleared_items_are_gone() -> None:
    waiting: WaitingItems[str] = WaitingItems()
    waiting.extend("l")
    waiting.extend("h", 5)
    waiting.clear()
    assert (len(waiting), bool(waiting)) == (0, False)


def test_threads_take_each_item_once() -> None:
    waiting: WaitingItems[int] = WaitingItems()
    found: list[int] = []

    def take() -> None:
        while True:
            try:
                item = waiting.popleft()
            except IndexError:
                if not waiting:
                    return
                continue
            if item < 0:
                return
            found.append(item)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for number in range(3_000):
        waiting.extend([number], number % 3)
    for thread in threads:
        thread.start()
    for number in range(3_000, 6_000):
        waiting.extend([number], number % 3)
    for thread in threads:
        thread.join(20)
    while waiting:
        found.append(waiting.popleft())
    assert sorted(found) == list(range(6_000))
