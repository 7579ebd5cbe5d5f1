"""Checks of name servers and brokers: who answers, where they say they are, their clocks and disks."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from kourou.admin.brokers import broker_configs
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity
from kourou.clock import duration_text
from kourou.errors import KourouError
from kourou.protocol.bodies import ClusterInfo, TopicList, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.names import COMPILED_KERNEL, COMPILED_KERNEL_CURE, STORE_FENCED
from kourou.wording import counted

CLOCK_WARNING_MS: Final = 2_000
CLOCK_PROBLEM_MS: Final = 30_000
_RUNTIME: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")
# `runtime` is told in whole seconds.
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
# Where Docker puts the networks that it makes by itself.
_DOCKER: Final = tuple(map(ipaddress.ip_network, ("172.17.0.0/16", "172.18.0.0/15", "172.20.0.0/14")))


# -- name servers ------------------------------------------------------------------------------------


async def check_namesrvs(snapshot: ClusterSnapshot) -> list[Finding]:
    """Each name server alone: whether it answers, and whether it knows what the others know."""
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
        what=f"it does not answer: {error}",
        meaning="clients that have only this one in their list find no topic; others lose time on it",
        cure="start it, open the way to it, or take it from the lists of clients and brokers (namesrvAddr)",
    )


def _ignorant_namesrv(address: str, missing: list[str]) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check="name servers",
        where=f"name server {address}",
        what=f"others know what it does not: {_listed(missing)}",
        meaning="what clients see depends on which name server they ask: some find no route",
        cure="brokers register at every address of their namesrvAddr: write all name servers there, with ';' "
        "between them, and look in the broker's log why it cannot reach this one",
    )


# -- brokers and addresses ---------------------------------------------------------------------------


async def check_brokers(snapshot: ClusterSnapshot) -> list[Finding]:
    """Whether each broker answers at the address that the name server gives to clients."""
    return [
        Finding(
            severity=Severity.PROBLEM,
            check="brokers",
            where=broker.where,
            what=f"it does not answer: {broker.problem}",
            meaning="clients get this address from the name server and fail on it, unless they are where it "
            "can be reached"
            if _is_docker(_host(broker))
            else "producers and consumers of its queues wait or fail, until the name server forgets it 2 "
            "minutes after its last registration",
            cure=_unreachable_cure(broker),
        )
        for broker in snapshot.brokers
        if broker.problem
    ]


def _unreachable_cure(broker: BrokerView) -> str:
    host = _host(broker)
    port = broker.place.address.rpartition(":")[2]
    if _is_docker(host):
        return (
            f"{host} is an address inside Docker: set brokerIP1 to the address of the machine and publish "
            f"port {port} of the container under the same number"
        )
    return f"see whether it runs; if it does, open port {port}, or set brokerIP1 to an address clients reach"


async def check_addresses(snapshot: ClusterSnapshot) -> list[Finding]:
    """Addresses that lead clients of other machines nowhere, or to themselves."""
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
        what=f"it tells clients to come to {broker.place.address}",
        meaning="clients on other machines look for the broker on their own machine and find none",
        cure="fine while everything is on one machine; else set brokerIP1 to an address that clients reach",
    )


def _unknown_name(broker: BrokerView) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check="addresses",
        where=broker.where,
        what=f"the name {_host(broker)} has no address here",
        meaning="clients on machines that do not know the name cannot connect",
        cure="set brokerIP1 to an address, or to a name that is in the DNS of all clients",
    )


def _docker(broker: BrokerView) -> Finding:
    return Finding(
        severity=Severity.HINT,
        check="addresses",
        where=broker.where,
        what=f"{_host(broker)} looks like an address inside Docker",
        meaning="it can be reached from here, but hardly from other machines",
        cure="if clients are elsewhere, set brokerIP1 to the machine's address and publish the broker's port",
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
    """How far brokers' clocks are from this machine's: `bootTimestamp` plus `runtime` is their time.

    That is told in whole seconds and takes a moment to come, so only what is beyond that is counted.
    """
    living = [broker for broker in snapshot.brokers if not broker.problem]
    return [finding for broker in living for finding in (*_clock(snapshot, broker), *_clock_steps(broker))]


def _clock_steps(broker: BrokerView) -> Iterator[Finding]:
    """Kourou's brokers notice when their clock is set."""
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
        meaning="messages that waited for a delay keep it; timestamps of messages, searches by time and the "
        "age of lag are wrong across the step",
        cure="find out what sets the clock; NTP that slews (chronyd, after its start) does not step it",
    )


def _clock(snapshot: ClusterSnapshot, broker: BrokerView) -> Iterator[Finding]:
    reported_ms = broker_clock_ms(broker.runtime)
    if reported_ms is None:
        snapshot.skip("clocks", broker.where, "it does not tell bootTimestamp and runtime")
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
        meaning="delayed messages come early or late, searches by time and the age of lag are wrong, and "
        "transactions are checked at the wrong time",
        cure="have both machines set by NTP (chronyc tracking, timedatectl), and see which of them is wrong",
    )


def broker_clock_ms(runtime: dict[str, str]) -> int | None:
    """What a broker's clock showed, rounded down to a second after its start; None if it does not say."""
    found = _RUNTIME.search(runtime.get("runtime", ""))
    boot = runtime.get("bootTimestamp", "")
    if found is None or not boot.isdecimal():
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return int(boot) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def clock_skew_ms(reported_ms: int, requested_ms: int, answered_ms: int) -> int:
    """By how much a clock is ahead at least, below 0 behind; 0 if it may be right."""
    if reported_ms > answered_ms:
        return reported_ms - answered_ms
    return min(0, reported_ms + _RUNTIME_STEP_MS - requested_ms)


# -- disks -------------------------------------------------------------------------------------------


async def check_disks(snapshot: ClusterSnapshot) -> list[Finding]:
    """How full the disks of the stores are, by the limit of each broker."""
    living = [broker for broker in snapshot.brokers if not broker.problem]
    if not living:
        return []
    configs = await broker_configs(snapshot.admin, [broker.place.address for broker in living])
    limits = {each.address: each.config.get("diskMaxUsedSpaceRatio", "") for each in configs}
    return [
        replace(finding, commands=(snapshot.command("wipeWritePerm", "-b", broker.place.broker_name),))
        for broker in living
        for finding in disk_findings(broker, limits.get(broker.place.address, ""))
    ]


def disk_findings(broker: BrokerView, limit: str) -> Iterator[Finding]:
    """What the ratios of one broker mean; `limit` is its diskMaxUsedSpaceRatio."""
    limit_ratio = int(limit) / 100 if limit.isdecimal() else _DEFAULT_DISK_RATIO / 100
    for key, name in (("commitLogDiskRatio", "CommitLog"), ("consumeQueueDiskRatio", "ConsumeQueues")):
        try:
            ratio = float(broker.runtime.get(key, "0"))
        except ValueError:
            continue
        if ratio < min(limit_ratio, _FULL_DISK_RATIO):
            continue
        is_full = ratio >= _FULL_DISK_RATIO
        yield Finding(
            severity=Severity.PROBLEM if is_full else Severity.WARNING,
            check="disks",
            where=broker.where,
            what=f"the disk of its {name} is {ratio:.0%} full",
            meaning="it refuses messages, and deletes old ones that may not be consumed yet"
            if is_full
            else f"beyond {limit_ratio:.0%} old messages are deleted before fileReservedTime is over, "
            "consumed or not",
            cure="make room or add disk; keep messages for a shorter time (fileReservedTime); or stop writes "
            "to this broker until there is room (wipeWritePerm)",
        )


# -- compiled kernel ---------------------------------------------------------------------------------


async def check_kernels(snapshot: ClusterSnapshot) -> list[Finding]:
    """Whether brokers use the compiled kernel. Apache's brokers have none, and no such key."""
    return [finding for broker in snapshot.brokers for finding in kernel_findings(broker)]


def kernel_findings(broker: BrokerView) -> Iterator[Finding]:
    """What it means that one broker does not use it."""
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
    """Whether a broker has fenced its store: it takes no more messages until it is restarted."""
    return [finding for broker in snapshot.brokers for finding in fence_findings(broker)]


def fence_findings(broker: BrokerView) -> Iterator[Finding]:
    """Why one broker takes no more messages, if it says so. Apache's brokers do not."""
    if STORE_FENCED in broker.runtime:
        yield Finding(
            severity=Severity.PROBLEM,
            check="stores",
            where=broker.where,
            what=broker.runtime[STORE_FENCED],
            meaning="it refuses every message that is sent to it; what it can still read is consumed",
            cure="do what the reason says before the broker is restarted; docs/operations.md has the steps: "
            '"A store that was moved, removed or cut"',
        )


# -- damage ------------------------------------------------------------------------------------------


async def check_damage(snapshot: ClusterSnapshot) -> list[Finding]:
    """Whether brokers have found damage in their stores. Apache's brokers do not say."""
    return [
        finding for broker in snapshot.brokers if not broker.problem for finding in damage_findings(broker)
    ]


def damage_findings(broker: BrokerView) -> Iterator[Finding]:
    """What the counters of one broker mean."""
    counts = {key: _count(broker.runtime.get(key, "")) for key in _DAMAGE_KEYS}
    cure = (
        "see the broker's log for files and offsets, run `kourou store check` on a copy of the store, and "
        "look for disk errors (dmesg, smartctl)"
    )
    if counts["damagedLogStretches"] or counts["lostMessages"]:
        count = counts["damagedLogStretches"]
        stretches = counted(count, "stretch", "stretches")
        yield Finding(
            severity=Severity.PROBLEM,
            check="damage",
            where=broker.where,
            what=f"known damage of its CommitLog: {stretches}, {counts['damagedLogBytes']} bytes; messages "
            f"found lost since its start: {counts['lostMessages']}",
            meaning="messages whose records lay in damaged stretches are lost, also those found lost before "
            "its start, unless a backup has them; consumers go on after them, all others are served",
            cure="quarantine/damages.json in its store lists the stretches; "
            f"{cure}; put damaged files back from a backup while the broker is stopped",
        )
    if rebuilt := counts["rebuiltQueueUnits"] + counts["rebuiltIndexEntries"]:
        yield Finding(
            severity=Severity.WARNING,
            check="damage",
            where=broker.where,
            what=f"{rebuilt} entries of its ConsumeQueues and index did not fit the CommitLog and were "
            "rebuilt",
            meaning="nothing is lost, but something wrote into these files, or the disk does not keep them",
            cure=cure,
        )
    if counts["rebuiltTimerWheels"]:
        yield Finding(
            severity=Severity.WARNING,
            check="damage",
            where=broker.where,
            what="files of its timer wheel were missing or damaged and were rebuilt (times since its start: "
            f"{counts['rebuiltTimerWheels']})",
            meaning="every delayed message is still delivered once, but something wrote into these files, or "
            "the disk does not keep them",
            cure=cure,
        )


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
