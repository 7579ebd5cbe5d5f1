"""TopicWatch: the state of one topic that has an overflow policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kourou.broker.overflow.drop_plan import Gate, Size, WaitEstimate, share_used
from kourou.protocol.overflow_rule import OverflowPolicy, OverflowRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kourou.broker.overflow.backlog_meter import BacklogMeter, GroupBacklog

_NEVER = 1 << 62


@dataclass(slots=True, eq=False)
class TopicWatch:
    """What is known of one topic since its last measurement, and what has happened to its messages."""

    topic: str
    rule: OverflowRule
    meter: BacklogMeter
    gate: Gate = field(default_factory=Gate)
    wait: WaitEstimate = field(default_factory=WaitEstimate)
    share: float = 0.0
    """Of a limit, by the slowest live group."""
    size: Size = Size()
    group: str = ""
    """The slowest live group."""
    rejected: int = 0
    """Sends that were rejected since the start of the broker."""
    over_since_ms: int | None = None
    """Since when sends are rejected, or messages are dropped; wall time."""
    dropped: int = 0
    """Messages that were dropped, or became dead letters, since then."""
    rejected_before: int = 0
    last_drop_ms: int = 0
    problem: str = ""
    """Why messages that have to be dropped cannot be."""
    retry_ms: int = 0
    arrived: int = 0
    room_messages: int = _NEVER
    room_phy_offset: int = _NEVER

    def measured(self, backlogs: Sequence[GroupBacklog], log_end: int) -> None:
        """Take note of the backlogs. Until as many messages or bytes have come as there is room for, no limit
        of these is reached: a backlog grows by nothing else, but for groups
        that begin or go back."""
        rule = self.rule
        self.share, self.size, self.group = 0.0, Size(), ""
        self.room_messages = self.room_phy_offset = _NEVER
        for backlog in backlogs:
            size = backlog.size
            share = share_used(rule, size)
            if share >= self.share:
                self.share, self.size, self.group = share, size, backlog.group
            if rule.messages is not None:
                self.room_messages = min(self.room_messages, max(1, rule.messages - size.messages))
            if rule.size_bytes is not None:
                self.room_phy_offset = min(
                    self.room_phy_offset, log_end + max(1, rule.size_bytes - size.size_bytes)
                )

    def is_due(self, log_end: int) -> bool:
        """Whether a limit may have been reached."""
        return self.arrived >= self.room_messages or log_end >= self.room_phy_offset

    @property
    def rejects(self) -> bool:
        """Whether the policy is to reject sends."""
        return self.rule.policy is OverflowPolicy.REJECT

    def describe(self) -> str:
        """The numbers for a log line or a rejection."""
        size, parts = self.size, []
        if self.rule.messages is not None:
            parts.append(f"{size.messages} of {self.rule.messages} messages")
        if self.rule.size_bytes is not None:
            parts.append(f"{size.size_bytes} of {self.rule.size_bytes} bytes")
        if self.rule.age_ms is not None:
            parts.append(f"{size.age_ms // 1000} of {self.rule.age_ms // 1000} s of age")
        return f"the backlog of group {self.group} has {', '.join(parts)}"
