"""Which member may become master, and when it tries."""

from __future__ import annotations

from typing import Any

from kourou.etcd import Changes, KeyValue, Snapshot
from kourou.failover.election import best_successor, candidacy, first_set, restarted_wait_s
from kourou.failover.set_state import InSyncValue, MemberValue, SetKeys, SetState, encode_value

KEYS = SetKeys.of("/kourou", "c", "broker-a")


def state(
    in_sync: tuple[int, ...] | None,
    alive: dict[int, int],
    handover: int | None = None,
    logs: dict[int, tuple[int, int]] | None = None,
) -> SetState:
    """`alive`: priorities by member; `logs`: the last epoch and the end of theirs."""
    log = logs or {}
    values: dict[str, Any] = {
        KEYS.member(each): MemberValue(
            member_id=each,
            address="",
            ha_address="",
            priority=priority,
            log_epoch=log.get(each, (0, 0))[0],
            log_end=log.get(each, (0, 0))[1],
        )
        for each, priority in alive.items()
    }
    if in_sync is not None:
        values[KEYS.in_sync] = InSyncValue(version=1, members=in_sync, phy_offset=500)
    if handover is not None:
        values[KEYS.handover] = handover
    found = SetState(KEYS)
    found.update(
        Snapshot(9, tuple(KeyValue(key, encode_value(value), 5, 9, 0) for key, value in values.items()))
    )
    return found


def turns(found: SetState, **options: Any) -> dict[int, float]:
    """When each of the members alive tries; those that do not are left out."""
    options = {"end_phy_offset": 500, "may_lose_messages": False, **options}
    tries = {each: candidacy(found, each, **options) for each in found.members}
    return {each: one.turn_s for each, one in tries.items() if one.problem is None}


def test_members_in_sync_try_one_after_the_other() -> None:
    found = turns(state((1, 2, 3), {1: 0, 2: 0, 3: 0, 4: 0}))
    assert found.keys() == {1, 2, 3}
    assert found[1] == 0.0 < found[2] < found[3]


def test_the_lowest_priority_is_first() -> None:
    found = turns(state((1, 2, 3), {1: 9, 2: 1, 3: 5}))
    assert sorted(found, key=lambda each: found[each]) == [2, 3, 1]


def test_the_one_that_is_handed_over_to_is_first() -> None:
    found = turns(state((1, 2, 3), {1: 0, 2: 5, 3: 9}, handover=3))
    assert found[3] == 0.0
    assert min(found[1], found[2]) >= 2.0
    # It died meanwhile.
    assert turns(state((1, 2, 3), {1: 0, 2: 5}, handover=3))[1] == 0.0


def test_one_that_may_lack_messages_says_which_have_them() -> None:
    problem = candidacy(state((1, 2), {3: 0}), 3, end_phy_offset=500, may_lose_messages=False).problem
    assert problem is not None
    assert "the members in sync are 1, 2" in problem
    assert "failoverMayLoseMessages" in problem


def test_messages_are_lost_only_if_no_member_in_sync_is_alive() -> None:
    assert 3 in turns(state((1, 2), {3: 0}), may_lose_messages=True)
    assert 3 not in turns(state((1, 2), {2: 0, 3: 0}), may_lose_messages=True)


def test_one_whose_log_has_lost_its_end_does_not_take_over() -> None:
    found = state((1, 2), {1: 0, 2: 0})
    problem = candidacy(found, 1, end_phy_offset=499, may_lose_messages=False).problem
    assert problem is not None
    assert "ends at 499, and was acknowledged up to 500" in problem
    assert candidacy(found, 1, end_phy_offset=499, may_lose_messages=True).problem is not None  # 2 is alive
    assert candidacy(state((1, 2), {1: 0}), 1, end_phy_offset=499, may_lose_messages=True).problem is None


def test_after_a_crash_of_all_the_most_complete_log_is_first() -> None:
    alive = {1: 0, 2: 0, 3: 0}
    found = state((1, 2, 3), alive, logs={1: (4, 900), 2: (4, 1000), 3: (3, 2000)})
    waits = {each: restarted_wait_s(found, each, 6.0) for each in alive}
    assert waits[2] < waits[1] == waits[3]
    # One that has just been started goes behind those that kept running, even with the same log.
    assert waits[2] > 0
    # Those that are not there yet have a lease's time.
    found = state((1, 2, 3), {1: 0}, logs={1: (4, 900)})
    assert restarted_wait_s(found, 1, 6.0) == 6.0
    assert restarted_wait_s(state((1, 2, 3), {}), 1, 6.0) == 6.0  # its own key is not there yet
    assert restarted_wait_s(state((1,), {1: 0, 2: 0}), 1, 6.0) == 0.0
    assert restarted_wait_s(state(None, {1: 0, 2: 0}), 1, 6.0) == 0.0


def test_the_successor_of_choice_has_the_lowest_priority_of_those_that_are_ready() -> None:
    found = state((1, 2, 3), {1: 0, 2: 9, 3: 5})
    assert best_successor(found, {2, 3}) == 3
    assert best_successor(found, {4}) is None


def test_any_member_founds_the_set() -> None:
    found = turns(state(None, {1: 0, 2: 0}))
    assert found[1] == 0.0 < found[2]


def test_the_first_set_of_a_reign() -> None:
    assert first_set(state((1, 2, 3), {2: 0, 3: 0}), 2, min_copies=2) == (2, 3)
    assert first_set(state((1, 2, 3), {2: 0}), 2, min_copies=2) == (1, 2, 3)
    assert first_set(state((1, 2), {3: 0}), 3, min_copies=2) == (3,)
    assert first_set(state(None, {3: 0}), 3, min_copies=2) == (3,)


def test_the_state_follows_changes() -> None:
    found = state((1, 2), {1: 0, 2: 0})
    gone = KeyValue(KEYS.member(1), b"", 0, 10, 0)
    found.update(Changes(10, (KeyValue(KEYS.epoch, b"4", 10, 10, 0),), (gone,)))
    assert found.epoch == 4
    assert found.members.keys() == {2}
    assert found.created_revision(KEYS.member(1)) == 0
    assert found.modified_revision(KEYS.epoch) == 10


def test_a_key_that_was_deleted_and_created_again_exists() -> None:
    found = state((1, 2), {1: 0, 2: 0})
    value = encode_value(MemberValue(member_id=1, address="new", ha_address="", priority=0))
    deleted, created = KeyValue(KEYS.member(1), b"", 0, 10, 0), KeyValue(KEYS.member(1), value, 11, 11, 0)
    found.update(Changes(11, (created,), (deleted,)))
    assert found.members[1].address == "new"
    assert found.created_revision(KEYS.member(1)) == 11
    # The other way round.
    found.update(
        Changes(13, (KeyValue(KEYS.member(1), value, 12, 12, 0),), (KeyValue(KEYS.member(1), b"", 0, 13, 0),))
    )
    assert 1 not in found.members
