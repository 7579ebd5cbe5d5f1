"""Checks of broker sets that choose their master through etcd: members, spares, clocks, and etcd itself.

Input is what members report in their runtime information (FailoverStatus).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.admin.doctor.checks_servers import CLOCK_WARNING_MS, clock_range_ms
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity, merged
from kourou.clock import duration_text
from kourou.protocol.failover_status import EtcdMember, FailoverStatus
from kourou.wording import counted

_CHECK: Final = "fail-over"
_SAFE_ETCD: Final = 3
"""With fewer members etcd stops when one is lost."""

# The first release of each line in which a bug of leases is fixed; older lines have it, newer ones do not.
_REVOKED_EARLY_FIXED: Final = ((3, 4, 31), (3, 5, 13))
_RENEWED_DEAD_FIXED: Final = ((3, 4, 38), (3, 5, 23), (3, 6, 5))


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a set: the broker and its report."""

    broker: BrokerView
    status: FailoverStatus

    @property
    def where(self) -> str:
        place = self.broker.place
        return f"broker {place.broker_name} ({place.address})"


async def check_failover(snapshot: ClusterSnapshot) -> list[Finding]:
    """All broker sets of the cluster."""
    findings: list[Finding] = []
    for name, members in sets_of(snapshot.brokers).items():
        findings += set_findings(name, members)
        findings += clock_findings(name, members)
        findings += etcd_findings(name, members)
    return merged(findings)


def sets_of(brokers: Iterable[BrokerView]) -> dict[str, list[MemberView]]:
    """The members of each set, by its name; brokers that are no members are left out."""
    sets: dict[str, list[MemberView]] = {}
    for broker in brokers:
        status = FailoverStatus.of(broker.runtime)
        if status is not None:
            sets.setdefault(broker.place.broker_name, []).append(MemberView(broker, status))
    return sets


# -- members -----------------------------------------------------------------------------------------


def set_findings(name: str, members: Sequence[MemberView]) -> Iterator[Finding]:
    """A set without master or spare, and members that are not alive, not in sync or out of date."""
    newest = max((each.status for each in members), key=lambda status: (status.epoch, status.is_master))
    where = f"broker {name}"
    ready = [each for each in newest.in_sync if each in newest.alive]
    if newest.master is None:
        yield _no_master(where, newest, ready)
    elif len(ready) < newest.min_in_sync:
        yield _too_few(where, newest, ready)
    elif len(ready) == newest.min_in_sync:
        yield _no_spare(where, newest, ready)
    if dead := [each for each in newest.in_sync if each not in newest.alive]:
        yield _dead_in_sync(where, dead)
    if behind := [each for each in newest.alive if each not in newest.in_sync]:
        yield _not_in_sync(where, behind)
    gone = newest.joined - len({*newest.alive, *newest.in_sync})
    if gone > 0:
        yield _gone(where, newest, gone)
    for member in members:
        if member.status.epoch < newest.epoch:
            yield _old_view(member, newest)


def _listed(members: Iterable[int]) -> str:
    return ", ".join(map(str, members)) or "none"


def _no_master(where: str, status: FailoverStatus, ready: Sequence[int]) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=where,
        what=f"the set has no master now; alive: {_listed(status.alive)}, in sync: {_listed(status.in_sync)}",
        meaning="messages to this set are rejected"
        + ("" if ready else "; no living member has every acknowledged message, so none takes over"),
        cure="a member in sync takes over within seconds; see its log if it does not"
        if ready
        else f"start one of the members in sync ({_listed(status.in_sync)}); if their stores are lost, "
        "failoverMayLoseMessages lets another take over, without the messages it lacks",
    )


def _too_few(where: str, status: FailoverStatus, ready: Sequence[int]) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=where,
        what=f"{counted(len(ready), 'member')} alive and in sync ({_listed(ready)}), but "
        f"minInSyncReplicas is {status.min_in_sync}",
        meaning="messages to this set are rejected, so that none is acknowledged with too few copies",
        cure="start the other members, or see their logs for why they do not follow",
    )


def _no_spare(where: str, status: FailoverStatus, ready: Sequence[int]) -> Finding:
    only = status.min_in_sync == 1
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=where,
        what=f"the set has no spare: {counted(len(ready), 'member')} in sync ({_listed(ready)}), "
        f"minInSyncReplicas is {status.min_in_sync}",
        meaning="if the master is lost, no other member can take over"
        if only
        else "if one of them is lost, messages are rejected until it is back",
        cure="start another member and wait until it is in sync; for one loss without a break a set needs "
        f"{counted(status.min_in_sync + 1, 'member')}",
    )


def _dead_in_sync(where: str, dead: Sequence[int]) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=where,
        what=f"not alive although in the in-sync set: member {_listed(dead)}",
        meaning="a master in sync mode waits for it until it has left the set, about a second; the set does "
        "not become smaller than minInSyncReplicas",
        cure="start it; see its log for why it ended, or why it does not reach etcd",
    )


def _not_in_sync(where: str, behind: Sequence[int]) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=where,
        what=f"alive, but not in sync: member {_listed(behind)}",
        meaning="it lacks messages, and cannot become master",
        cure="normal while a new or restarted member catches up; otherwise see its log, disk and network",
    )


def _gone(where: str, status: FailoverStatus, gone: int) -> Finding:
    return Finding(
        severity=Severity.HINT,
        check=_CHECK,
        where=where,
        what=f"{counted(status.joined, 'member')} have joined the set, {len(status.alive)} are alive "
        f"({_listed(status.alive)})",
        meaning=f"{gone} of them left the set of members: stopped, lost, or removed for good",
        cure="start it if it belongs to the set; a number that was given is not given again",
    )


def _old_view(member: MemberView, newest: FailoverStatus) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=member.where,
        what=f"it knows of epoch {member.status.epoch}, others of epoch {newest.epoch}",
        meaning="it does not get the changes of etcd: it follows an old master, or none",
        cure="see its log; check the network between this member and etcd (failoverEtcdEndpoints)",
    )


# -- clocks ------------------------------------------------------------------------------------------


def clock_findings(name: str, members: Sequence[MemberView]) -> Iterator[Finding]:
    """Members whose clocks differ from each other; which of them is wrong is not known."""
    ranges = [(member, found) for member in members if (found := clock_range_ms(member.broker))]
    for (one, (low, high)), (other, (other_low, other_high)) in itertools.combinations(ranges, 2):
        apart_ms = max(low - other_high, other_low - high)
        if apart_ms > CLOCK_WARNING_MS:
            yield Finding(
                severity=Severity.WARNING,
                check=_CHECK,
                where=f"broker {name}",
                what=f"the clocks of members {one.status.member_id} ({one.broker.place.address}) and "
                f"{other.status.member_id} ({other.broker.place.address}) are at least "
                f"{duration_text(apart_ms)} apart",
                meaning="when one takes over from the other, delayed messages arrive early or late by that, "
                "and message timestamps jump; the election does not depend on clocks",
                cure="synchronise all members by NTP (chronyc tracking, timedatectl)",
            )


# -- etcd --------------------------------------------------------------------------------------------


def etcd_findings(name: str, members: Sequence[MemberView]) -> Iterator[Finding]:
    """Too few members of etcd, such that do not answer, and versions with known bugs of leases."""
    where = f"etcd of broker {name}"
    for endpoints in sorted({tuple(each.address for each in member.status.etcd) for member in members}):
        if 0 < len(endpoints) < _SAFE_ETCD:
            yield _small_etcd(where, endpoints)
    for member in members:
        if silent := [each for each in member.status.etcd if each.problem]:
            yield _silent_etcd(member, silent)
    versions: dict[str, list[str]] = {}
    for member in members:
        for each in member.status.etcd:
            if each.version and each.address not in (found := versions.setdefault(each.version, [])):
                found.append(each.address)
    for version, addresses in versions.items():
        if bugs := lease_bugs(version):
            yield _old_etcd(where, version, addresses, bugs)


def lease_bugs(version: str) -> list[str]:
    """What may go wrong with leases in this version of etcd.

    >>> lease_bugs("3.5.16")
    ['renewals of a lease that is gone may be answered as if it lived']
    """
    numbers = _version(version)
    if numbers is None:
        return []
    bugs = []
    if _is_before(numbers, _REVOKED_EARLY_FIXED):
        bugs.append("a leader of etcd that was paused may revoke leases too early")
    if _is_before(numbers, _RENEWED_DEAD_FIXED):
        bugs.append("renewals of a lease that is gone may be answered as if it lived")
    return bugs


def _version(text: str) -> tuple[int, int, int] | None:
    parts = text.partition("-")[0].split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    major, minor, patch = map(int, parts)
    return major, minor, patch


def _is_before(version: tuple[int, int, int], fixed: Sequence[tuple[int, int, int]]) -> bool:
    """Whether a version is older than the fix of its line, or of a line older than all that have it."""
    of_line = [each for each in fixed if each[:2] == version[:2]]
    return version < (of_line[0] if of_line else fixed[0])


def _small_etcd(where: str, endpoints: Sequence[str]) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=where,
        what=f"failoverEtcdEndpoints has {counted(len(endpoints), 'member')} of etcd: {', '.join(endpoints)}",
        meaning="without it no member can be master: all sets reject messages until it is back"
        if len(endpoints) == 1
        else "if one of them is lost, no member can be master: all sets reject messages until it is back",
        cure="run etcd with three members on three machines, and name all of them",
    )


def _silent_etcd(member: MemberView, silent: Sequence[EtcdMember]) -> Finding:
    is_cut_off = 2 * len(silent) >= len(member.status.etcd)
    return Finding(
        severity=Severity.PROBLEM if is_cut_off else Severity.WARNING,
        check=_CHECK,
        where=member.where,
        what="no answer from etcd at " + ", ".join(f"{each.address} ({each.problem})" for each in silent),
        meaning="as master it stops when its lease ends; as slave it cannot take over"
        if is_cut_off
        else "the others go on; etcd stops when it has lost its majority",
        cure="start that member of etcd, or check the network to it; etcdctl endpoint status shows all",
    )


def _old_etcd(where: str, version: str, addresses: Sequence[str], bugs: Sequence[str]) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=where,
        what=f"etcd {version} ({', '.join(addresses)}) has known bugs: {'; '.join(bugs)}",
        meaning="a needless change of master, or one that takes longer; two masters at once are prevented "
        "all the same, because each renewal also reads the master's key",
        cure="update etcd to 3.5.23, 3.6.5 or later, one member after the other",
    )
