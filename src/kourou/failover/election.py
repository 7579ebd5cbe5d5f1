"""Election: which member may become master, and when it tries. Pure decisions over a SetState.

The members of the in-sync set have every acknowledged message, so any of them may. They try one after the
other, the preferred first: at equal priority the one with the lower number.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from typing import Final

from kourou.failover.set_state import SetState

_TURN_S: Final = 0.3
# The member that a master hands over to goes first, even if another one is preferred.
_HANDOVER_S: Final = 2.0
# How much later than the others a member tries that has been started again, and one with a shorter log.
_RESTARTED_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Whether this member may take over now. `problem`: why not. `turn_s`: for how long there has to be no
    master before it tries."""

    problem: str | None = None
    turn_s: float = 0.0


def candidacy(state: SetState, member_id: int, *, end_phy_offset: int, may_lose_messages: bool) -> Candidacy:
    """What a member does while there is no master. `end_phy_offset`: where its log ends."""
    in_sync, alive = state.in_sync, state.members
    if in_sync is None:
        return Candidacy(turn_s=_TURN_S * _rank(state, member_id, alive))
    names = ", ".join(map(str, in_sync.members))
    if member_id in in_sync.members and end_phy_offset >= in_sync.phy_offset:
        if state.handover is not None and state.handover in alive:
            return Candidacy(turn_s=0.0 if state.handover == member_id else _HANDOVER_S)
        return Candidacy(turn_s=_TURN_S * _rank(state, member_id, alive.keys() & set(in_sync.members)))
    if not may_lose_messages and member_id in in_sync.members:
        return Candidacy(
            problem=f"the log of member {member_id} ends at {end_phy_offset}, and was acknowledged up to "
            f"{in_sync.phy_offset} at least: it has lost its end; start another of the members in sync "
            f"({names}), or set failoverMayLoseMessages=true and lose it"
        )
    if not may_lose_messages:
        return Candidacy(
            problem=f"member {member_id} may lack acknowledged messages: the members in sync are {names}; "
            "start one of them, or set failoverMayLoseMessages=true and lose them"
        )
    if alive.keys() & set(in_sync.members) - {member_id}:
        return Candidacy(problem=f"members in sync are alive: {names}")
    return Candidacy(turn_s=_HANDOVER_S + _TURN_S * _rank(state, member_id, alive))


def _rank(state: SetState, member_id: int, candidates: Container[int]) -> int:
    members = [each for each in state.members.values() if each.member_id in candidates]
    order = sorted((each.priority, each.member_id) for each in members)
    return next((rank for rank, (_, each) in enumerate(order) if each == member_id), len(order))


def restarted_wait_s(state: SetState, member_id: int, lease_s: float) -> float:
    """How much later a member tries that has not followed a master since its process was started: its machine
    may have crashed and lost the end of the log. Those that kept running go first, then the one with the most
    complete log. Others of the set that were started later have a lease's time to come back."""
    own, in_sync = state.members.get(member_id), state.in_sync
    others = set(in_sync.members) - {member_id} if in_sync is not None else set()
    if not others:
        return 0.0
    alive = [each for each in state.members.values() if each.member_id in others]
    if own is None or len(alive) < len(others):  # its own key is written a moment after the start
        return lease_s
    is_behind = any((each.log_epoch, each.log_end) > (own.log_epoch, own.log_end) for each in alive)
    return (bool(alive) + is_behind) * _RESTARTED_S


def best_successor(state: SetState, ready: Collection[int]) -> int | None:
    """The preferred one of the members that are ready and alive."""
    members = [each for each in state.members.values() if each.member_id in ready]
    best = min(members, key=lambda each: (each.priority, each.member_id), default=None)
    return best.member_id if best else None


def first_set(state: SetState, member_id: int, *, min_copies: int) -> tuple[int, ...]:
    """The in-sync set that a new master begins with: those of the old one that are alive. All of the old one
    if these are too few: messages are rejected until enough of them are back."""
    old = state.in_sync
    if old is None or member_id not in old.members:
        return (member_id,)  # the first one, or one that may lose messages
    alive = tuple(each for each in old.members if each == member_id or each in state.members)
    return alive if len(alive) >= min_copies else old.members
