"""Where the next pop begins while check points are not stored yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.pop_offsets import PopOffsets

KEY = OrderKey("T", "G", 0)


class Committed:
    """The table of consumer offsets."""

    def __init__(self) -> None:
        self.offset = -1
        self.reset: int | None = None

    def query(self, group: str, topic: str, queue_id: int) -> int:
        return self.offset

    def commit(self, group: str, topic: str, queue_id: int, offset: int, host: str) -> None:
        self.offset = offset

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        reset, self.reset = self.reset, None
        return reset


class Offsets:
    """The offsets of a queue that holds [2, 100)."""

    def __init__(self) -> None:
        self.committed = Committed()
        self.cleared: list[OrderKey] = []
        self.queue: Any = SimpleNamespace(min_queue_offset=2, max_queue_offset=100)
        parts: dict[str, Any] = {
            "config": SimpleNamespace(current=SimpleNamespace(init_pop_offset_by_check_msg_in_mem=True)),
            "log": SimpleNamespace(max_phy_offset=1000),
            "offsets": self.committed,
            "orders": SimpleNamespace(clear=self.cleared.append),
        }
        self.offsets = PopOffsets(memory_bytes=lambda: 100, **parts)

    def begin(self, init_mode: int = 0) -> int | None:
        return self.offsets.begin(KEY, self.queue, init_mode, "")

    def stored(self, epoch: int, next_offset: int, *, is_stored: bool = True) -> None:
        self.offsets.stored(KEY, epoch, next_offset, "", is_stored=is_stored)


def test_the_next_pop_begins_behind_the_pending_one() -> None:
    pops = Offsets()
    assert pops.begin() == 2 == pops.committed.offset
    first = pops.offsets.advance(KEY, 10)
    assert pops.begin() == 10 and pops.committed.offset == 2
    second = pops.offsets.advance(KEY, 20)
    pops.stored(first, 10)
    assert (pops.committed.offset, pops.begin()) == (10, 20)
    pops.stored(second, 20)
    assert (pops.committed.offset, pops.begin()) == (20, 20)


def test_after_a_check_point_that_is_not_stored_nothing_is_skipped() -> None:
    pops = Offsets()
    pops.begin()
    first, second = pops.offsets.advance(KEY, 10), pops.offsets.advance(KEY, 20)
    pops.stored(first, 10, is_stored=False)
    assert pops.begin() == 2
    pops.stored(second, 20)
    assert pops.committed.offset == 2, "the messages of the first would be lost"
    assert pops.begin() == 2


def test_what_is_passed_over_behind_a_pending_pop_waits_for_it() -> None:
    pops = Offsets()
    pops.begin()
    epoch = pops.offsets.advance(KEY, 10)
    pops.offsets.pass_over(KEY, 15, "")
    assert (pops.committed.offset, pops.begin()) == (2, 15)
    pops.stored(epoch, 10)
    assert pops.committed.offset == 15
    pops.offsets.pass_over(KEY, 17, "")
    assert pops.committed.offset == 17


def test_a_reset_counts_more_than_a_pending_pop() -> None:
    pops = Offsets()
    pops.begin()
    epoch = pops.offsets.advance(KEY, 50)
    pops.committed.reset = 5
    assert pops.begin() == 5 and pops.cleared == [KEY]
    pops.stored(epoch, 50)
    assert (pops.committed.offset, pops.begin()) == (5, 5)


def test_an_offset_that_was_committed_beyond_stays() -> None:
    pops = Offsets()
    pops.begin()
    epoch = pops.offsets.advance(KEY, 10)
    pops.committed.offset = 90
    pops.stored(epoch, 10)
    assert pops.committed.offset == 90


@pytest.mark.parametrize(
    ("low", "high", "unit_phy_offset", "begin"),
    [(0, 100, 950, 0), (0, 100, 899, 99), (0, 100, None, None), (2, 100, 950, 99), (0, 0, 0, 0)],
    ids=["in memory", "older", "on disk", "first one gone", "empty"],
)
def test_where_a_new_group_begins_at_the_newest(
    low: int, high: int, unit_phy_offset: int | None, begin: int | None
) -> None:
    pops = Offsets()
    unit = None if unit_phy_offset is None else unit_phy_offset.to_bytes(8, "big") + bytes(12)
    pops.queue = SimpleNamespace(
        min_queue_offset=low, max_queue_offset=high, read_units_nowait=lambda *_: unit
    )
    assert pops.begin(1) == begin
    assert pops.committed.offset == (-1 if begin is None else begin)


def test_a_retry_topic_is_read_from_its_beginning() -> None:
    pops = Offsets()
    key = OrderKey("%RETRY%G_T", "G", 0)
    assert pops.offsets.begin(key, pops.queue, 1, "") == 2


def test_the_backlog_of_a_group_that_has_not_begun_is_the_queue() -> None:
    pops = Offsets()
    assert pops.offsets.backlog(KEY, pops.queue) == 98
    assert pops.offsets.backlog(KEY, None) == 0
    pops.committed.offset = 70
    assert pops.offsets.backlog(KEY, pops.queue) == 30
