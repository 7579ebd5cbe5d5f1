"""Reign: what a master of a fail-over set may do, and what its acknowledgements wait for.

A reign lasts from the transaction in etcd that made this broker master to its deadline, which every renewal
of the lease moves: counted from when the renewal was *sent*, on a clock that also runs while the machine is
suspended. It is looked at before each write and again when answers leave, so that a process that was stopped
in between acknowledges nothing. A pause that stops the machine's clocks too is not noticed here. Then it
counts that acknowledgements need every member of the in-sync set: the new master was one of them, and reports
to the old one no more.

The in-sync set that is waited for is the union of what etcd has committed and what was proposed: a member is
left out only when etcd has the smaller set, and is waited for before etcd has the larger one.

Promises of all members of the set (failover/promises.py) move the deadline, too, while etcd cannot be
reached. Then the master's key may expire there, and the reign goes on without it until the key is written
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

NO_ACK: Final = -1


def boottime_s() -> float:
    """Seconds since the machine was started, suspended ones included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Reign:
    """One reign of one member."""

    def __init__(
        self,
        *,
        epoch: int,
        member_id: int,
        in_sync: Iterable[int],
        deadline_s: float,
        now_s: Callable[[], float] = boottime_s,
    ) -> None:
        self.epoch = epoch
        self.member_id = member_id
        self._now_s = now_s
        self._deadline_s = self._leased_s = deadline_s
        self._promised_s = 0.0
        self._committed = frozenset(in_sync)
        self._proposed: frozenset[int] | None = None
        self._set_waited_for()
        self.end_reason: str | None = None
        self.lacks_key = False
        """Whether its key in etcd is gone, and has to be written again."""
        self.on_end: list[Callable[[], None]] = []
        self.confirmed_phy_offset = 0
        """Nothing behind this was acknowledged."""
        self.begin_phy_offset = 0
        """Where its records begin."""

    # -- time ------------------------------------------------------------------------------------

    def is_good(self) -> bool:
        """Whether this broker may append and acknowledge now."""
        return self.end_reason is None and self._now_s() < self._deadline_s

    def renewed(self, deadline_s: float) -> None:
        """The lease was renewed: a deadline never moves back. One that has passed is the end: what was
        written before it may have been refused meanwhile."""
        if self._now_s() >= self._deadline_s:
            return
        self._leased_s = max(self._leased_s, deadline_s)
        self._deadline_s = max(self._deadline_s, deadline_s)

    def promised(self, deadline_s: float) -> None:
        """All members that may take over have promised to wait."""
        if self._now_s() >= self._deadline_s:
            return
        self._promised_s = deadline_s
        self._deadline_s = max(self._deadline_s, deadline_s)

    @property
    def rests_on_promises(self) -> bool:
        """Whether it lasts longer than its lease. A member that would join the set meanwhile has promised
        nothing, so the set stays as it is."""
        return self._promised_s > self._leased_s

    def key_lost(self, reason: str) -> None:
        """Its key in etcd is gone: the end, unless it rests on promises."""
        if self.rests_on_promises and self.is_good():
            self.lacks_key = True
        else:
            self.end(reason)

    def key_found(self, deadline_s: float) -> None:
        """Its key in etcd is there again, under a lease with this deadline."""
        self.lacks_key = False
        self.renewed(deadline_s)

    @property
    def left_s(self) -> float:
        """How long it is good without another renewal."""
        return 0.0 if self.end_reason is not None else max(0.0, self._deadline_s - self._now_s())

    def end(self, reason: str) -> None:
        """Append and acknowledge nothing from now on."""
        if self.end_reason is None:
            self.end_reason = reason
            for ended in self.on_end:
                ended()

    @property
    def why_not_good(self) -> str | None:
        """Why this broker may not append, in one line; None: it may."""
        if self.end_reason is not None:
            return self.end_reason
        if self._now_s() < self._deadline_s:
            return None
        return (
            "its lease as master has run out: etcd could not be reached in time, or the process was stopped"
        )

    # -- the in-sync set ---------------------------------------------------------------------------

    @property
    def in_sync(self) -> frozenset[int]:
        """The set that etcd has committed last."""
        return self._committed

    @property
    def proposed(self) -> frozenset[int] | None:
        """The set that etcd was asked to commit, while that is undecided."""
        return self._proposed

    def propose(self, members: Iterable[int]) -> None:
        """Wait for these, too, from now on."""
        self._proposed = frozenset(members)
        self._set_waited_for()

    def committed(self, members: Iterable[int]) -> None:
        """Etcd has this set, and no proposal is under way."""
        self._committed = frozenset(members)
        self._proposed = None
        self._set_waited_for()

    def _set_waited_for(self) -> None:
        members = self._committed | (self._proposed or frozenset())
        self.waited_for = tuple(sorted(members - {self.member_id}))


class InSyncAcks:
    """How far the log is on every member of the in-sync set (`Replicas` of the commit cycle)."""

    def __init__(self, reign: Reign, *, min_copies: int) -> None:
        self._reign = reign
        self.min_copies = min_copies
        self._acks: Mapping[int, int] = {}

    def update(self, acks: Mapping[int, int]) -> None:
        """The reports of all connected slaves, by their ids."""
        self._acks = acks

    def in_sync(self, end_phy_offset: int) -> int:
        """How many slaves of the set are connected."""
        return sum(member in self._acks for member in self._reign.waited_for)

    def is_enough(self, end_phy_offset: int) -> bool:
        """A message that a member of the set does not have stays invisible."""
        return True

    def is_worth_waiting(self, end_phy_offset: int) -> bool:
        """Senders always wait."""
        return True

    def mark(self, end_phy_offset: int) -> int:
        """How far every member of the set is."""
        waited_for = self._reign.waited_for
        if len(waited_for) + 1 < self.min_copies:
            return NO_ACK
        acks = self._acks
        mark = min((acks.get(member, NO_ACK) for member in waited_for), default=end_phy_offset)
        if mark > self._reign.confirmed_phy_offset:
            self._reign.confirmed_phy_offset = mark
        return mark

    def has_taken_over(self) -> bool:
        """Whether every member of the set has what was in the log when this reign began: no fail-over can cut
        it off any more."""
        begin = self._reign.begin_phy_offset
        return self.mark(begin) >= begin

    def problem(self, end_phy_offset: int) -> str | None:
        """Why messages are rejected; None: they are not."""
        copies = self.in_sync(end_phy_offset) + 1
        if copies >= self.min_copies:
            return None
        return f"{copies} of {self.min_copies} copies in sync, the master's among them"
