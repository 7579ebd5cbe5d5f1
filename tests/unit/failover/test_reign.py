"""What a master may do, and what its acknowledgements wait for."""

from __future__ import annotations

import pytest

from kourou.broker.replication.reign import InSyncAcks, Reign
from kourou.failover.promises import Promise


class Boottime:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def reign(clock: Boottime, members: tuple[int, ...] = (1, 2, 3)) -> Reign:
    return Reign(epoch=7, member_id=1, in_sync=members, deadline_s=105.0, now_s=clock)


def test_it_is_good_until_the_deadline_and_a_renewal_moves_that() -> None:
    clock = Boottime()
    held = reign(clock)
    clock.now_s = 104.9
    assert held.is_good()
    held.renewed(110.0)
    held.renewed(107.0)  # an answer that was overtaken
    clock.now_s = 109.0
    assert held.is_good()
    clock.now_s = 110.0
    assert not held.is_good()
    assert "run out" in (held.why_not_good or "")


def test_a_deadline_that_has_passed_is_the_end() -> None:
    clock = Boottime()
    held = reign(clock)
    clock.now_s = 105.0
    held.renewed(110.0)  # the answer came too late
    assert not held.is_good()


def test_promises_prolong_it_without_a_lease() -> None:
    clock = Boottime()
    held = reign(clock)
    clock.now_s = 104.0
    held.promised(108.0)
    assert held.rests_on_promises
    clock.now_s = 107.0
    held.key_lost("its key in etcd is gone")
    assert held.is_good() and held.lacks_key
    held.key_found(112.0)
    assert not held.lacks_key and not held.rests_on_promises
    held.key_lost("its key in etcd is gone")  # by a hand
    assert not held.is_good()


def test_promises_that_come_too_late_or_run_out() -> None:
    clock = Boottime()
    held = reign(clock)
    held.promised(104.0)  # shorter than the lease
    assert not held.rests_on_promises
    clock.now_s = 105.0
    held.promised(110.0)
    assert not held.is_good()
    held.key_lost("its key in etcd is gone")
    assert held.end_reason == "its key in etcd is gone"


def test_a_promise_is_limited_and_an_earlier_process_may_have_given_one() -> None:
    clock = Boottime()
    promise = Promise(6, clock)
    assert promise.left_s == 6.0
    clock.now_s = 107.0
    assert promise.left_s == 0.0
    assert promise.give(60_000) == 6_000
    assert promise.give(1_000) == 1_000  # does not shorten the first
    assert promise.left_s == 6.0


def test_an_end_is_for_good_and_says_why_once() -> None:
    held, ends = reign(Boottime()), []
    held.on_end.append(lambda: ends.append(held.end_reason))
    held.end("it hands over to member 2")
    held.end("another reason")
    held.renewed(1_000.0)
    assert not held.is_good()
    assert ends == ["it hands over to member 2"]
    assert held.why_not_good == "it hands over to member 2"
    assert held.left_s == 0.0


def test_a_member_is_left_out_only_when_etcd_has_the_smaller_set() -> None:
    held = reign(Boottime())
    acks = InSyncAcks(held, min_copies=2)
    acks.update({2: 500})
    assert acks.mark(900) < 0  # 3 is not there
    held.propose({1, 2})
    assert acks.mark(900) < 0
    held.committed({1, 2})
    assert acks.mark(900) == 500


def test_a_member_is_waited_for_before_etcd_has_the_larger_set() -> None:
    held = reign(Boottime(), (1, 2))
    acks = InSyncAcks(held, min_copies=2)
    acks.update({2: 500, 3: 400})
    assert acks.mark(900) == 500
    held.propose({1, 2, 3})
    assert acks.mark(900) == 400
    assert held.in_sync == {1, 2}
    held.committed({1, 2})  # etcd did not take it
    assert acks.mark(900) == 500


@pytest.mark.parametrize(("min_copies", "problem"), [(1, None), (2, "1 of 2 copies"), (3, "1 of 3 copies")])
def test_too_few_copies_confirm_nothing_and_reject(min_copies: int, problem: str | None) -> None:
    held = reign(Boottime(), (1,))
    acks = InSyncAcks(held, min_copies=min_copies)
    assert (acks.mark(900) == 900) is (problem is None)
    found = acks.problem(900)
    assert found is None if problem is None else found is not None and found.startswith(problem)


def test_messages_are_rejected_while_members_of_the_set_are_away() -> None:
    acks = InSyncAcks(reign(Boottime(), (1, 2, 3)), min_copies=2)
    acks.update({4: 900})  # connected, but not of the set
    assert acks.problem(900) is not None
    acks.update({3: 0})
    assert acks.problem(900) is None


def test_what_was_acknowledged_is_remembered() -> None:
    held = reign(Boottime(), (1, 2))
    acks = InSyncAcks(held, min_copies=2)
    held.confirmed_phy_offset = held.begin_phy_offset = 300
    assert not acks.has_taken_over()
    acks.update({2: 250})
    acks.mark(900)
    assert not acks.has_taken_over()
    assert held.confirmed_phy_offset == 300
    acks.update({2: 600})
    acks.mark(900)
    acks.update({})
    acks.mark(900)
    assert held.confirmed_phy_offset == 600
