"""Who belongs to the in-sync set: the decision of a master about its slaves. Pure.

A slave joins when it has all that was acknowledged and from now on is waited for; one that falls behind or is
gone leaves. The set does not shrink below `min_copies`: messages are rejected then, so the members that are
away still have every acknowledged message, and may become master when they are back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GONE_S: Final = 1.0
"""A slave that has been disconnected for this long leaves the set; one that connects anew does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveSeen:
    """A connected slave, as its master sees it."""

    ack_phy_offset: int
    behind_s: float
    min_phy_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSeen:
    """The master's log. `acknowledged_phy_offset`: nothing behind it was acknowledged."""

    min_phy_offset: int
    acknowledged_phy_offset: int


def next_in_sync(
    current: frozenset[int],
    member_id: int,
    slaves: Mapping[int, SlaveSeen],
    log: LogSeen,
    *,
    gone_s: Mapping[int, float],
    max_behind_s: float,
    min_copies: int,
) -> frozenset[int]:
    """The set as it should be. `gone_s`: for how long members of the set have been disconnected."""
    joining = {
        each
        for each, slave in slaves.items()
        if each not in current
        and slave.ack_phy_offset >= log.acknowledged_phy_offset
        and not lacks_beginning(slave, log)
    }
    leaving = {
        each
        for each in current - {member_id}
        if (slaves[each].behind_s > max_behind_s if each in slaves else gone_s.get(each, 0.0) >= GONE_S)
    }
    wanted = (current | joining) - leaving
    return wanted if len(wanted) >= min_copies else current | joining


def lacks_beginning(slave: SlaveSeen, log: LogSeen) -> bool:
    """Whether a slave's log begins later than the master's: as master it could not serve what lies before."""
    return slave.min_phy_offset > log.min_phy_offset
