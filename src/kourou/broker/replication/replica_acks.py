"""ReplicaAcks: how far the log is on as many slaves as senders have to wait for.

4.9's rule, where `inSyncReplicas` is not set: one slave, any. 5.x's rule, where it is: so many copies, the
master's among them. Pure arithmetic over the reports of slaves; the commit cycle waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AckRule:
    """What `brokerRole` and the keys around `inSyncReplicas` come to. `copies` counts the master; 1: senders
    wait for no slave."""

    copies: int = 1
    min_copies: int = 1
    is_auto: bool = False
    waits_for_all: bool = False
    max_gap_bytes: int = 268_435_456
    answers_at_once: bool = False
    """4.9's rule: while there are not enough slaves, a message is stored and its sender gets
    SLAVE_NOT_AVAILABLE at once. 5.x's: it is rejected."""

    @property
    def rejects(self) -> bool:
        """Whether messages are rejected while there are not enough slaves."""
        return self.copies > 1 and not self.answers_at_once

    def needed(self, in_sync: int) -> int:
        """How many slaves have to acknowledge, with so many slaves in sync now."""
        if self.waits_for_all:
            return max(self.min_copies - 1, in_sync)
        copies = self.copies
        if self.is_auto:
            copies = max(self.min_copies, min(copies, in_sync + 1))
        return copies - 1


class ReplicaAcks:
    """The mark that a sender's record has to be below."""

    def __init__(self, rule: AckRule) -> None:
        self.rule = rule
        self._acks: list[int] = []  # the furthest first

    def update(self, acks: Iterable[int]) -> None:
        """The reports of all connected slaves."""
        self._acks = sorted(acks, reverse=True)

    def in_sync(self, end_phy_offset: int) -> int:
        """How many slaves are connected and not too far behind this end of the log."""
        return sum(end_phy_offset - ack < self.rule.max_gap_bytes for ack in self._acks)

    def is_enough(self, end_phy_offset: int) -> bool:
        """Whether as many slaves are in sync as have to acknowledge."""
        needed = self._needed(end_phy_offset)
        if not needed:
            return True
        acks = self._acks
        return needed <= len(acks) and end_phy_offset - acks[needed - 1] < self.rule.max_gap_bytes

    def is_worth_waiting(self, end_phy_offset: int) -> bool:
        """Whether a sender is to wait for slaves at all."""
        return not self.rule.answers_at_once or self.is_enough(end_phy_offset)

    def problem(self, end_phy_offset: int) -> str | None:
        """Why messages that have to wait for slaves are rejected (5.x's rule); None: they are not."""
        if not self.rule.rejects or self.is_enough(end_phy_offset):
            return None
        in_sync = self.in_sync(end_phy_offset)
        return f"{in_sync + 1} of {self.rule.needed(in_sync) + 1} copies, the master's among them"

    def mark(self, end_phy_offset: int) -> int:
        """How far enough slaves are; -1: there are not enough."""
        needed = self._needed(end_phy_offset)
        if not needed:
            return end_phy_offset
        return self._acks[needed - 1] if needed <= len(self._acks) else -1

    def _needed(self, end_phy_offset: int) -> int:
        rule = self.rule
        # Asked several times in each commit cycle: slaves are counted only where it depends on them.
        if rule.is_auto or rule.waits_for_all:
            return rule.needed(self.in_sync(end_phy_offset))
        return rule.copies - 1
