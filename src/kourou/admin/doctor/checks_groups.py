"""Checks of consumer groups: consistent members, assigned queues, lag, dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kourou.admin.consume_stats import GroupProgress
from kourou.admin.doctor.cluster_snapshot import ClusterSnapshot, GroupView, Member
from kourou.admin.doctor.findings import Finding, Severity
from kourou.admin.groups import consume_modes
from kourou.admin.running_info import STARTED_FOR_A_WHILE_MS, RunningInfo
from kourou.admin.topics import TopicStatus
from kourou.clock import wall_ms
from kourou.errors import ResponseError
from kourou.protocol.bodies import ConsumeType, MessageModel, MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import is_dlq_topic, is_retry_topic
from kourou.protocol.versions import version_desc
from kourou.wording import counted

# Members rebalance every 20 seconds, and sooner when one joins.
_REBALANCED_AFTER_MS: Final = 30_000
_RECENT_MS: Final = 3_600_000
_SHOWN_QUEUES: Final = 6
# Stands for all queues of a broker, where consumers pop.
_ANY_QUEUE: Final = -1


# -- members -----------------------------------------------------------------------------------------


async def check_subscriptions(snapshot: ClusterSnapshot) -> list[Finding]:
    """Groups whose members have different subscriptions."""
    findings: list[Finding] = []
    for view in snapshot.groups:
        _skip_silent(snapshot, view, "subscriptions")
        subscriptions: dict[frozenset[tuple[str, str, str]], list[Member]] = {}
        for member in view.members:
            if member.info is not None:
                subscriptions.setdefault(_subscription(member.info), []).append(member)
        if len(subscriptions) > 1:
            findings.append(_different(view, subscriptions))
    return findings


def _skip_silent(snapshot: ClusterSnapshot, view: GroupView, check: str) -> None:
    for member in view.members:
        if member.info is None:
            snapshot.skip(check, f"group {view.group}, {member.where}", member.problem)


def _subscription(info: RunningInfo) -> frozenset[tuple[str, str, str]]:
    return frozenset((one.topic, one.expression_type, one.sub_string) for one in info.subscriptions)


def _different(
    view: GroupView, subscriptions: dict[frozenset[tuple[str, str, str]], list[Member]]
) -> Finding:
    shared = frozenset.intersection(*subscriptions)
    sides = [
        f"{members[0].where}{f' and {len(members) - 1} more' if len(members) > 1 else ''} to "
        + (
            ", ".join(f"{topic} [{text}]" for topic, _, text in sorted(subscription - shared))
            or "nothing else"
        )
        for subscription, members in subscriptions.items()
    ]
    is_young = view.youngest_ms(wall_ms()) < STARTED_FOR_A_WHILE_MS
    return Finding(
        severity=Severity.WARNING if is_young else Severity.PROBLEM,
        check="subscriptions",
        where=f"group {view.group}",
        what=f"its members have different subscriptions: {'; '.join(sides)}",
        meaning="brokers keep one subscription per group, the last one received: messages that it does "
        "not select are skipped for all members and are not delivered again"
        + (" (a member has just started: a new version may be rolling out)" if is_young else ""),
        cure="use separate groups for members that do different work; roll out subscription changes "
        "under a new group name",
    )


async def check_client_ids(snapshot: ClusterSnapshot) -> list[Finding]:
    """Groups in which several members have the same client id."""
    findings: list[Finding] = []
    for view in snapshot.groups:
        counts = Counter(member.connection.client_id for member in view.members)
        for client_id in sorted(name for name, count in counts.items() if count > 1):
            addresses = [
                member.connection.client_addr
                for member in view.members
                if member.connection.client_id == client_id
            ]
            findings.append(_same_id(view.group, client_id, addresses))
    return findings


def _same_id(group: str, client_id: str, addresses: list[str]) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check="client ids",
        where=f"group {group}",
        what=f"{len(addresses)} members have the client id {client_id}: {', '.join(addresses)}",
        meaning="queues are assigned by client id: these members work on the same queues, and each message "
        "is consumed more than once",
        cure="give each an instance name of its own; in containers with host network and process id 1 set "
        "instanceName",
    )


async def check_client_versions(snapshot: ClusterSnapshot) -> list[Finding]:
    """Groups whose members have different versions or languages."""
    findings: list[Finding] = []
    for view in snapshot.groups:
        kinds = Counter(
            f"{member.connection.language or 'unknown'} {version_desc(member.connection.version)}"
            for member in view.members
        )
        if len(kinds) > 1:
            kinds_text = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
            findings.append(_mixed(view.group, kinds_text))
    return findings


def _mixed(group: str, kinds_text: str) -> Finding:
    return Finding(
        severity=Severity.HINT,
        check="client versions",
        where=f"group {group}",
        what=f"its members differ: {kinds_text}",
        meaning="versions may assign queues differently, so that some are assigned twice or not at all",
        cure="finish the rollout; use one client library, or at least one allocation strategy, per group",
    )


# -- queues without consumer -------------------------------------------------------------------------


async def check_unheld_queues(snapshot: ClusterSnapshot) -> list[Finding]:
    """Queues of subscribed topics that are not assigned to any member of an online group."""
    findings: list[Finding] = []
    for view in snapshot.groups:
        if not _shares_queues(view):
            continue
        infos = [member.info for member in view.members if member.info is not None]
        if len(infos) < len(view.members):
            _skip_silent(snapshot, view, "queues without consumer")
            continue
        held = {_key(running.queue) for info in infos for running in info.queues if not running.info.dropped}
        popped = {_key(popped.queue) for info in infos for popped in info.pop_queues}
        wanted = {
            queue
            for info in infos
            for subscription in info.subscriptions
            for queue in snapshot.readable_queues(subscription.topic)
        }
        if unheld := sorted(queue for queue in wanted - held - popped if not _is_popped(queue, popped)):
            findings.append(_unheld(view, unheld))
    return findings


def _is_popped(queue: tuple[str, str, int], popped: set[tuple[str, str, int]]) -> bool:
    """Whether a member pops from all queues of the topic at that broker."""
    topic, broker_name, _ = queue
    return (topic, broker_name, _ANY_QUEUE) in popped


def _shares_queues(view: GroupView) -> bool:
    """Whether each queue belongs to one member: not in groups that broadcast, pop or pull."""
    return (
        view.is_online
        and view.connection.message_model is not MessageModel.BROADCASTING
        and view.connection.consume_type is ConsumeType.CONSUME_PASSIVELY
    )


def _key(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _unheld(view: GroupView, unheld: list[tuple[str, str, int]]) -> Finding:
    lags = {
        _key(queue.message_queue): queue.diff for queue in (view.progress.queues if view.progress else ())
    }
    waiting = sum(max(0, lags.get(queue, 0)) for queue in unheld)
    shown = ", ".join(f"{topic} {broker}/{queue_id}" for topic, broker, queue_id in unheld[:_SHOWN_QUEUES])
    more = f" and {len(unheld) - _SHOWN_QUEUES} more" if len(unheld) > _SHOWN_QUEUES else ""
    is_young = view.youngest_ms(wall_ms()) < _REBALANCED_AFTER_MS
    return Finding(
        severity=Severity.HINT if is_young else Severity.PROBLEM if waiting else Severity.WARNING,
        check="queues without consumer",
        where=f"group {view.group}",
        what=f"not assigned: {shown}{more}; unconsumed messages there: {waiting}",
        meaning="messages of these queues are not consumed"
        + (" (a member has just started: check again in half a minute)" if is_young else ""),
        cure="make sure that all members have the same allocation strategy, different client ids and "
        "the same name servers; restart the member that should consume them",
    )


# -- consume modes -----------------------------------------------------------------------------------


async def check_consume_modes(snapshot: ClusterSnapshot) -> list[Finding]:
    """Groups that have one mode for a topic at one master, and another at the next."""
    modes: dict[tuple[str, str], dict[str, str]] = {}
    asked: list[str] = []
    for broker in snapshot.living_masters:
        try:
            found = await consume_modes(snapshot.admin, broker.place.address)
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                snapshot.skip("consume modes", broker.where, error)
            continue
        asked.append(broker.place.broker_name)
        for key, mode in found.items():
            modes.setdefault(key, {})[broker.place.broker_name] = mode.mode.value
    return [
        finding for key in sorted(modes) for finding in _differing_modes(snapshot, *key, modes[key], asked)
    ]


def _differing_modes(
    snapshot: ClusterSnapshot, topic: str, group: str, set_at: dict[str, str], asked: list[str]
) -> Iterator[Finding]:
    route = snapshot.routes.get(topic)
    brokers = {data.broker_name for data in route.queue_datas} if route is not None else set()
    at = {name: set_at.get(name, "not set") for name in asked if name in brokers}
    if len(set(at.values())) > 1:
        mode = "POP" if "POP" in at.values() else "PULL"
        yield Finding(
            severity=Severity.WARNING,
            check="consume modes",
            where=f"group {group}",
            what=f"how it reads {topic} differs: "
            + ", ".join(f"{mode} at {name}" for name, mode in at.items()),
            meaning="a member that lets brokers assign its queues asks any of them: it changes between pull "
            "and POP, and messages are delivered late, or twice",
            cure="set one mode on all brokers",
            commands=tuple(
                snapshot.command("setConsumeMode", "-c", cluster, "-t", topic, "-g", group, "-m", mode)
                for cluster in snapshot.clusters_of(topic)
            ),
        )


# -- keeping up --------------------------------------------------------------------------------------


async def check_lag(snapshot: ClusterSnapshot) -> list[Finding]:
    """Groups that fall behind between the two snapshots, or have a lag and no member."""
    return [finding for view in snapshot.groups for finding in _lag(snapshot, view)]


def _lag(snapshot: ClusterSnapshot, view: GroupView) -> Iterator[Finding]:
    later = snapshot.later_groups.get(view.group)
    if view.progress is None or later is None:
        return
    before, after = lag_by_topic(view.progress), lag_by_topic(later)
    if not view.is_online:
        if waiting := sum(after.values()):
            yield _offline(snapshot, view.group, waiting, waiting - sum(before.values()))
        return
    for topic in sorted(after):
        grown = after[topic] - before.get(topic, 0)
        if grown > 0 and after[topic] > 0:
            yield _falls_behind(snapshot, view, topic, after[topic], grown / max(snapshot.watch_s, 0.001))


def lag_by_topic(progress: GroupProgress) -> dict[str, int]:
    """A group's lag by topic."""
    lags: dict[str, int] = {}
    for queue in progress.queues:
        if not is_dlq_topic(queue.topic):
            lags[queue.topic] = lags.get(queue.topic, 0) + max(0, queue.diff)
    return lags


def _offline(snapshot: ClusterSnapshot, group: str, waiting: int, grown: int) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check="lag",
        where=f"group {group}",
        what=f"no member is online; unconsumed messages: {waiting}"
        + (f", {grown} more than a moment ago" if grown > 0 else ""),
        meaning="nothing is consumed; messages older than fileReservedTime are deleted",
        # Not a delete command: a group that is down for a moment would lose its offsets.
        cure="start its consumers; delete the group only if it is no longer used",
        commands=(snapshot.show_group(group),),
    )


def _falls_behind(snapshot: ClusterSnapshot, view: GroupView, topic: str, lag: int, rate: float) -> Finding:
    is_retry = is_retry_topic(topic)
    status = snapshot.command("consumerStatus", "-g", view.group, "-s")
    read, write = (str(2 * queues) for queues in snapshot.queue_nums(topic))
    more_queues = [
        snapshot.command("updateTopic", "-c", cluster, "-t", topic, "-r", read, "-w", write)
        for cluster in snapshot.clusters_of(topic)
    ]
    return Finding(
        severity=Severity.WARNING,
        check="lag",
        where=f"group {view.group}",
        what=f"unconsumed messages of {topic}: {lag}, growing by {rate:.1f} per second",
        meaning="handlers fail, and retries exceed what they complete"
        if is_retry
        else f"messages arrive faster than {counted(len(view.members), 'member')} can consume them",
        cure="find out why the handlers fail, from their log and the members' status"
        if is_retry
        else "find out what the handlers wait for, from the members' status; add members (up to the number "
        "of queues), threads or queues",
        commands=(status,) if is_retry else (status, *more_queues),
    )


# -- dead letters ------------------------------------------------------------------------------------


async def check_dead_letters(snapshot: ClusterSnapshot) -> list[Finding]:
    """Groups with dead letters: new, recent, or old ones."""
    findings: list[Finding] = []
    for topic, before in sorted(snapshot.dead_letters.items()):
        after = snapshot.later_dead_letters.get(topic, before)
        held = sum(queue.max_offset - queue.min_offset for queue in after.queues)
        grown = _end(after) - _end(before)
        if held > 0 or grown > 0:
            findings.append(_dead_letters(snapshot, topic, held, grown, after))
    return findings


def _end(status: TopicStatus) -> int:
    return sum(queue.max_offset for queue in status.queues)


def _dead_letters(
    snapshot: ClusterSnapshot, topic: str, held: int, grown: int, status: TopicStatus
) -> Finding:
    group = topic.removeprefix("%DLQ%")
    newest_ms = max(queue.last_update_timestamp for queue in status.queues)
    is_recent = newest_ms > wall_ms() - _RECENT_MS
    what = counted(held, "dead letter")
    if grown > 0:
        what += f", {grown} more than a moment ago"
    elif is_recent:
        what += f", the last {max(0, wall_ms() - newest_ms) // 60_000} min ago"
    return Finding(
        severity=Severity.PROBLEM if grown > 0 else Severity.WARNING if is_recent else Severity.HINT,
        check="dead letters",
        where=f"group {group}",
        what=what,
        meaning="its handlers failed on them as often as allowed; they are not delivered any more",
        cure="look at them (--dry-run), fix the handler, then send them back; they stay listed until their "
        "files expire",
        commands=(
            snapshot.command("redrive", "-g", group, "--dry-run"),
            snapshot.command("redrive", "-g", group),
        ),
    )
