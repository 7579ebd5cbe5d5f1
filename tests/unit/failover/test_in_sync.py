"""Which slaves belong to the in-sync set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kourou.failover.in_sync import GONE_S, LogSeen, SlaveSeen, next_in_sync

LOG = LogSeen(min_phy_offset=100, acknowledged_phy_offset=1_000)


def slave(ack: int = 1_000, behind_s: float = 0.0, first: int = 100) -> SlaveSeen:
    return SlaveSeen(ack_phy_offset=ack, behind_s=behind_s, min_phy_offset=first)


def wanted(current: set[int], slaves: Mapping[int, SlaveSeen], **options: Any) -> set[int]:
    options = {"gone_s": {}, "max_behind_s": 15.0, "min_copies": 2, **options}
    return set(next_in_sync(frozenset(current), 1, slaves, LOG, **options))


def test_a_slave_joins_when_it_has_all_that_was_acknowledged() -> None:
    assert wanted({1, 2}, {2: slave(), 3: slave(ack=999)}) == {1, 2}
    assert wanted({1, 2}, {2: slave(), 3: slave(ack=1_000)}) == {1, 2, 3}


def test_a_slave_whose_log_begins_later_never_joins() -> None:
    assert wanted({1, 2}, {2: slave(), 3: slave(first=101)}) == {1, 2}
    assert wanted({1, 2}, {2: slave(), 3: slave(first=0)}) == {1, 2, 3}


@pytest.mark.parametrize(("behind_s", "stays"), [(14.9, True), (15.1, False)])
def test_a_slave_that_is_behind_for_too_long_leaves(behind_s: float, stays: bool) -> None:
    found = wanted({1, 2, 3}, {2: slave(), 3: slave(behind_s=behind_s)})
    assert found == ({1, 2, 3} if stays else {1, 2})


def test_a_slave_that_connects_anew_stays_one_that_is_gone_leaves() -> None:
    assert wanted({1, 2, 3}, {2: slave()}, gone_s={3: GONE_S / 2}) == {1, 2, 3}
    assert wanted({1, 2, 3}, {2: slave()}, gone_s={3: GONE_S}) == {1, 2}


def test_the_set_does_not_shrink_below_the_least_copies() -> None:
    assert wanted({1, 2, 3}, {}, gone_s={2: 60.0, 3: 60.0}) == {1, 2, 3}
    assert wanted({1, 2}, {}, gone_s={2: 60.0}, min_copies=1) == {1}


def test_one_takes_the_place_of_another() -> None:
    assert wanted({1, 2}, {3: slave()}, gone_s={2: 60.0}) == {1, 3}
