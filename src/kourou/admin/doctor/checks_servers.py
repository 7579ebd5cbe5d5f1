"""Checks of name servers and brokers: availability, advertised addresses, clocks, disks, damage."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from kourou.admin.brokers import broker_configs
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity, merged
from kourou.clock import duration_text
from kourou.errors import KourouError
from kourou.protocol.bodies import ClusterInfo, TopicList, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.names import COMPILED_KERNEL, COMPILED_KERNEL_CURE, STORE_FENCED
from kourou.wording import counted

CLOCK_WARNING_MS: Final = 2_000
CLOCK_PROBLEM_MS: Final = 30_000
_RUNTIME: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")
# `runtime` has a resolution of a second.
_RUNTIME_STEP_MS: Final = 1_000
_DEFAULT_DISK_RATIO: Final = 75
_FULL_DISK_RATIO: Final = 0.90
_DAMAGE_KEYS: Final = (
    "damagedLogStretches",
    "damagedLogBytes",
    "lostMessages",
    "rebuiltQueueUnits",
    "rebuiltIndexEntries",
    "rebuiltTimerWheels",
)
# Docker's default networks.
_DOCKER: Final = tuple(map(ipaddress.ip_network, ("172.17.0.0/16", "172.18.0.0/15", "172.20.0.0/14")))


# -- name servers ------------------------------------------------------------------------------------


async def check_namesrvs(snapshot: ClusterSnapshot) -> list[Finding]:
    """Each name server on its own: whether it responds, and knows what the others know."""
    findings: list[Finding] = []
    known: dict[str, set[str]] = {}
    for address in snapshot.namesrvs:
        try:
            known[address] = await _known_to(snapshot, address)
        except KourouError as error:
            findings.append(_silent_namesrv(address, error))
    everything = set().union(*known.values()) if known else set()
    for address, names in known.items():
        if missing := sorted(everything - names):
            findings.append(_ignorant_namesrv(address, missing))
    return findings


async def _known_to(snapshot: ClusterSnapshot, address: str) -> set[str]:
    answer = await snapshot.admin.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    table = decode_body(answer.body, ClusterInfo).broker_addr_table
    answer = await snapshot.admin.call(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    topics = decode_body(answer.body, TopicList).topic_list
    brokers = {
        f"broker {name}-{broker_id} at {place}"
        for name, data in table.items()
        for broker_id, place in data.broker_addrs.items()
    }
    return brokers | {f"topic {topic}" for topic in topics}


def _silent_namesrv(address: str, error: KourouError) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check="name servers",
        where=f"name server {address}",
        what=f"no response: {error}",
        meaning="clients that have only this one in their list find no topic; others lose time on it",
        cure="start it, make it reachable, or remove it from the lists of clients and brokers (namesrvAddr)",
    )


def _ignorant_namesrv(address: str, missing: list[str]) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check="name servers",
        where=f"name server {address}",
        what=f"missing there, but known to others: {_listed(missing)}",
        meaning="what clients see depends on the name server they use: some find no route",
        cure="brokers register with every address in namesrvAddr: list all name servers there, separated "
        "by ';', and see the broker's log for why it cannot reach this one",
    )


# -- brokers and addresses ---------------------------------------------------------------------------


async def check_brokers(snapshot: ClusterSnapshot) -> list[Finding]:
    """Whether each broker responds at its advertised address."""
    return [
        _refusing(broker)
        if broker.is_refused
        else Finding(
            severity=Severity.PROBLEM,
            check="brokers",
            where=broker.where,
            what=f"no response: {broker.problem}",
            meaning="clients get this address from the name server and fail to connect, unless it is "
            "reachable from where they are"
            if _is_docker(_host(broker))
            else "producers and consumers of its queues wait or fail, until the name server removes it 2 "
            "minutes after its last registration",
            cure=_unreachable_cure(broker),
        )
        for broker in snapshot.brokers
        if broker.problem
    ]


def _refusing(broker: BrokerView) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check="brokers",
        where=broker.where,
        what=f"access control refuses to show its state: {broker.problem}",
        meaning="this examination says little about it; clients with accounts of their own are not affected",
        cure="give the keys of an administrator there (--acl FILE), or grant the user Get on its cluster",
    )


def _unreachable_cure(broker: BrokerView) -> str:
    host = _host(broker)
    port = broker.place.address.rpartition(":")[2]
    if _is_docker(host):
        return (
            f"{host} is an address inside Docker: set brokerIP1 to the address of the host and publish "
            f"port {port} of the container under the same number"
        )
    return f"check whether it is running; if so, open port {port}, or set brokerIP1 to a reachable address"


async def check_addresses(snapshot: ClusterSnapshot) -> list[Finding]:
    """Advertised addresses that are useless for clients on other machines."""
    is_all_here = all(_is_loopback(address.rpartition(":")[0]) for address in snapshot.namesrvs)
    findings: list[Finding] = []
    for broker in snapshot.brokers:
        host = _host(broker)
        if _is_loopback(host) or host in ("0.0.0.0", "::", "[::]"):
            findings.append(_loopback(broker, is_all_here))
        elif not await _is_resolved(host):
            findings.append(_unknown_name(broker))
        elif _is_docker(host) and not broker.problem:
            findings.append(_docker(broker))
    return findings


def _loopback(broker: BrokerView, is_all_here: bool) -> Finding:
    return Finding(
        severity=Severity.HINT if is_all_here else Severity.PROBLEM,
        check="addresses",
        where=broker.where,
        what=f"its advertised address is {broker.place.address}",
        meaning="clients on other machines look for the broker on their own machine and fail to connect",
        cure="fine as long as everything runs on one machine; otherwise set brokerIP1 to a reachable address",
    )


def _unknown_name(broker: BrokerView) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check="addresses",
        where=broker.where,
        what=f"the host name {_host(broker)} cannot be resolved here",
        meaning="clients that cannot resolve the name cannot connect",
        cure="set brokerIP1 to an address, or to a name in the DNS of all clients",
    )


def _docker(broker: BrokerView) -> Finding:
    return Finding(
        severity=Severity.HINT,
        check="addresses",
        where=broker.where,
        what=f"{_host(broker)} looks like an address inside Docker",
        meaning="it is reachable from here, but probably not from other machines",
        cure="if clients are elsewhere, set brokerIP1 to the host's address and publish the broker's port",
    )


def _host(broker: BrokerView) -> str:
    return broker.place.address.rpartition(":")[0]


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    ip = _ip(host)
    return ip.is_loopback if ip is not None else host == "localhost"


def _is_docker(host: str) -> bool:
    ip = _ip(host)
    return ip is not None and any(ip in network for network in _DOCKER)


async def _is_resolved(host: str) -> bool:
    if _ip(host) is not None:
        return True
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None)
    except socket.gaierror:
        return False
    return True


# -- clocks ------------------------------------------------------------------------------------------


async def check_clocks(snapshot: ClusterSnapshot) -> list[Finding]:
    """The difference between brokers' clocks and this machine's: `bootTimestamp` plus `runtime` is their
    time.

    It has a resolution of a second and includes the response time, so only larger differences are reported.
    """
    living = [broker for broker in snapshot.brokers if not broker.problem]
    return [finding for broker in living for finding in (*_clock(snapshot, broker), *_clock_steps(broker))]


def _clock_steps(broker: BrokerView) -> Iterator[Finding]:
    """Kourou's brokers detect steps of their clock."""
    count, step = broker.runtime.get("clockSteps", ""), broker.runtime.get("lastClockStepMs", "")
    at = broker.runtime.get("lastClockStepTimestamp", "")
    if not (count.isdecimal() and int(count) and at.isdecimal() and step.lstrip("-").isdecimal()):
        return
    way, size = "back" if step.startswith("-") else "ahead", duration_text(abs(int(step)))
    when = datetime.fromtimestamp(int(at) / 1000, UTC)
    yield Finding(
        severity=Severity.WARNING,
        check="clocks",
        where=broker.where,
        what=f"its clock was set {way} by {size}, to {when:%Y-%m-%d %H:%M:%S} UTC "
        f"(steps since its start: {count})",
        meaning="delays of waiting messages are not affected; message timestamps, searches by time and the "
        "age of the lag are wrong across the step",
        cure="find out what steps the clock; NTP that slews (chronyd, after its start) does not",
    )


def _clock(snapshot: ClusterSnapshot, broker: BrokerView) -> Iterator[Finding]:
    reported_ms = broker_clock_ms(broker.runtime)
    if reported_ms is None:
        snapshot.skip("clocks", broker.where, "it does not report bootTimestamp and runtime")
        return
    skew_ms = clock_skew_ms(reported_ms, broker.requested_ms, broker.answered_ms)
    if abs(skew_ms) <= CLOCK_WARNING_MS:
        return
    ahead = "ahead of" if skew_ms > 0 else "behind"
    yield Finding(
        severity=Severity.PROBLEM if abs(skew_ms) > CLOCK_PROBLEM_MS else Severity.WARNING,
        check="clocks",
        where=broker.where,
        what=f"its clock is at least {duration_text(abs(skew_ms))} {ahead} this machine's",
        meaning="delayed messages arrive early or late, searches by time and the age of the lag are wrong, "
        "and transactions are checked at the wrong time",
        cure="synchronise both machines by NTP (chronyc tracking, timedatectl), and see which one is wrong",
    )


def broker_clock_ms(runtime: dict[str, str]) -> int | None:
    """The time of a broker's clock, rounded down to a second after its start; None if not reported."""
    found = _RUNTIME.search(runtime.get("runtime", ""))
    boot = runtime.get("bootTimestamp", "")
    if found is None or not boot.isdecimal():
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return int(boot) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def clock_range_ms(broker: BrokerView) -> tuple[int, int] | None:
    """The least and the most by which a broker's clock is ahead of this machine's; None if not reported."""
    reported_ms = broker_clock_ms(broker.runtime)
    if reported_ms is None:
        return None
    return reported_ms - broker.answered_ms, reported_ms + _RUNTIME_STEP_MS - broker.requested_ms


def clock_skew_ms(reported_ms: int, requested_ms: int, answered_ms: int) -> int:
    """The minimum by which a clock is ahead, negative if behind; 0 if it may be right."""
    if reported_ms > answered_ms:
        return reported_ms - answered_ms
    return min(0, reported_ms + _RUNTIME_STEP_MS - requested_ms)


# -- disks -------------------------------------------------------------------------------------------


async def check_disks(snapshot: ClusterSnapshot) -> list[Finding]:
    """How full the disks of the stores are, compared with each broker's limit."""
    living = [broker for broker in snapshot.brokers if not broker.problem]
    if not living:
        return []
    configs = await broker_configs(snapshot.admin, [broker.place.address for broker in living])
    limits = {each.address: each.config.get("diskMaxUsedSpaceRatio", "") for each in configs}
    by_host: dict[str, list[Finding]] = {}
    for broker in living:
        stop = snapshot.command("wipeWritePerm", "-b", broker.place.broker_name)
        by_host.setdefault(broker.place.address.rpartition(":")[0], []).extend(
            replace(finding, commands=(stop,))
            for finding in disk_findings(broker, limits.get(broker.place.address, ""))
        )
    return [finding for findings in by_host.values() for finding in merged(findings)]


def disk_findings(broker: BrokerView, limit: str) -> Iterator[Finding]:
    """Problems with the disk usage of one broker; `limit` is its diskMaxUsedSpaceRatio."""
    limit_ratio = int(limit) / 100 if limit.isdecimal() else _DEFAULT_DISK_RATIO / 100
    disks: dict[float, list[str]] = {}
    for key, name in (("commitLogDiskRatio", "CommitLog"), ("consumeQueueDiskRatio", "ConsumeQueues")):
        with suppress(ValueError):
            disks.setdefault(round(float(broker.runtime.get(key, "0")), 2), []).append(name)
    for ratio, names in disks.items():
        if ratio < min(limit_ratio, _FULL_DISK_RATIO):
            continue
        is_full = ratio >= _FULL_DISK_RATIO
        yield Finding(
            severity=Severity.PROBLEM if is_full else Severity.WARNING,
            check="disks",
            where=broker.where,
            what=f"the disk of {' and '.join(names)} is {ratio:.0%} full",
            meaning="it rejects messages, and deletes old ones that may not have been consumed"
            if is_full
            else f"above {limit_ratio:.0%} old messages are deleted before fileReservedTime is over, "
            "consumed or not",
            cure="free disk space or add a disk; keep messages for a shorter time (fileReservedTime); or "
            "stop writes until there is space (wipeWritePerm)",
        )


# -- compiled kernel ---------------------------------------------------------------------------------


async def check_kernels(snapshot: ClusterSnapshot) -> list[Finding]:
    """Whether brokers use the compiled kernel. Apache's brokers have none and do not report the key."""
    return [finding for broker in snapshot.brokers for finding in kernel_findings(broker)]


def kernel_findings(broker: BrokerView) -> Iterator[Finding]:
    """The consequences of a broker without the kernel."""
    _, is_missing, problem = broker.runtime.get(COMPILED_KERNEL, "").partition("not in use: ")
    if is_missing:
        yield Finding(
            severity=Severity.HINT,
            check="compiled kernel",
            where=broker.where,
            what=f"it runs without the compiled kernel: {problem}",
            meaning="sends take two to three times the processor time, pulls up to twice as much",
            cure=broker.runtime.get(COMPILED_KERNEL_CURE, "see its log"),
        )


# -- stores ------------------------------------------------------------------------------------------


async def check_stores(snapshot: ClusterSnapshot) -> list[Finding]:
    """Whether a broker has fenced its store: it rejects messages until it is restarted."""
    return [finding for broker in snapshot.brokers for finding in fence_findings(broker)]


def fence_findings(broker: BrokerView) -> Iterator[Finding]:
    """Why a broker rejects all messages, if it has fenced its store. Apache's brokers never report this."""
    if STORE_FENCED in broker.runtime:
        yield Finding(
            severity=Severity.PROBLEM,
            check="stores",
            where=broker.where,
            what=broker.runtime[STORE_FENCED],
            meaning="it rejects every message; readable messages are still consumed",
            cure="resolve the reason before restarting the broker; docs/operations.md has the steps: "
            '"A store that was moved, removed or cut"',
        )


# -- damage ------------------------------------------------------------------------------------------


async def check_damage(snapshot: ClusterSnapshot) -> list[Finding]:
    """Whether brokers have found damage in their stores. Apache's brokers do not report it."""
    return [
        finding for broker in snapshot.brokers if not broker.problem for finding in damage_findings(broker)
    ]


def damage_findings(broker: BrokerView) -> Iterator[Finding]:
    """The meaning of one broker's damage counters."""
    counts = {key: _count(broker.runtime.get(key, "")) for key in _DAMAGE_KEYS}
    cure = (
        "see the broker's log for files and offsets, run `kourou store check` on a copy of the store, and "
        "look for disk errors (dmesg, smartctl)"
    )
    if counts["damagedLogStretches"] or counts["lostMessages"]:
        count = counts["damagedLogStretches"]
        ranges = counted(count, "range")
        yield Finding(
            severity=Severity.PROBLEM,
            check="damage",
            where=broker.where,
            what=f"known damage in its CommitLog: {ranges}, {counts['damagedLogBytes']} bytes; messages "
            f"found lost since its start: {counts['lostMessages']}",
            meaning="messages with records in damaged ranges are lost, including those found lost before "
            "its start, unless a backup has them; consumers continue after them, all others are served",
            cure="quarantine/damages.json in its store lists the ranges; "
            f"{cure}; restore damaged files from a backup while the broker is stopped",
        )
    if rebuilt := counts["rebuiltQueueUnits"] + counts["rebuiltIndexEntries"]:
        yield Finding(
            severity=Severity.WARNING,
            check="damage",
            where=broker.where,
            what=f"{rebuilt} entries of its ConsumeQueues and index did not match the CommitLog and were "
            "rebuilt",
            meaning="nothing is lost, but something wrote to these files, or the disk does not keep them",
            cure=cure,
        )
    if counts["rebuiltTimerWheels"]:
        yield Finding(
            severity=Severity.WARNING,
            check="damage",
            where=broker.where,
            what="files of its timer wheel were missing or damaged and were rebuilt (times since its start: "
            f"{counts['rebuiltTimerWheels']})",
            meaning="every delayed message is still delivered once, but something wrote to these files, or "
            "the disk does not keep them",
            cure=cure,
        )


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
