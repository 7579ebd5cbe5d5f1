"""RebalanceLockManager: one owner of a queue at a time, for a minute."""

from __future__ import annotations

from kourou.broker.groups.rebalance_lock import LOCK_MAX_LIVE_MS, RebalanceLockManager
from kourou.protocol.bodies import MessageQueue
from tests.unit.store.message_stores import Clock

ONE, OTHER = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def test_a_queue_has_one_owner_in_a_group() -> None:
    locks = RebalanceLockManager(Clock())
    assert locks.try_lock_batch("CG", [ONE], "c1") == {ONE}
    assert locks.try_lock_batch("CG", [ONE, OTHER], "c2") == {OTHER}
    assert locks.try_lock_batch("CG2", [ONE], "c2") == {ONE}
    assert locks.owner_of("CG", ONE) == "c1"
    assert locks.is_locked("CG", ONE, "c1")
    assert not locks.is_locked("CG", ONE, "c2")
    assert locks.owner_of("none", ONE) is None


def test_a_lock_that_is_not_renewed_for_a_minute_is_free() -> None:
    clock = Clock()
    locks = RebalanceLockManager(clock)
    locks.try_lock_batch("CG", [ONE, OTHER], "c1")
    clock.advance(LOCK_MAX_LIVE_MS)
    assert locks.try_lock_batch("CG", [ONE], "c1") == {ONE}
    assert locks.try_lock_batch("CG", [OTHER], "c2") == set()
    clock.advance(1)
    assert locks.owner_of("CG", OTHER) is None
    assert locks.try_lock_batch("CG", [ONE, OTHER], "c2") == {OTHER}
    assert not locks.is_lock_all_expired("CG")
    clock.advance(LOCK_MAX_LIVE_MS + 1)
    assert locks.is_lock_all_expired("CG")
    assert locks.is_lock_all_expired("none")
    assert locks.try_lock_batch("CG", [ONE], "c1") == {ONE}, "its own, expired"


def test_only_the_owner_unlocks() -> None:
    locks = RebalanceLockManager(Clock())
    locks.try_lock_batch("CG", [ONE], "c1")
    locks.unlock_batch("CG", [ONE, OTHER], "c2")
    assert locks.owner_of("CG", ONE) == "c1"
    locks.unlock_batch("CG", [ONE, OTHER], "c1")
    assert locks.owner_of("CG", ONE) is None
    locks.unlock_batch("CG", [ONE], "c1")
    assert locks.try_lock_batch("CG", [ONE], "c2") == {ONE}
