"""Changes of topics: create, change, copy, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from kourou.admin.order_conf import add_order_conf, delete_order_conf
from kourou.admin.session import BrokerAddress
from kourou.admin.targets import Outcome, on_each
from kourou.admin.topic_kinds import (
    MESSAGE_KINDS,
    TopicKind,
    message_kind,
    own_topics,
    topic_kind,
)
from kourou.admin.topics import create_topic, delete_topic, perm_letters, topic_status
from kourou.console.api.places import chosen_masters, mqadmin, named_outcomes, names_of, place_options
from kourou.console.api.topics import topic_settings
from kourou.console.api_errors import ApiError, bad_input
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoQuery, Plan, TargetOutcome
from kourou.errors import KourouError
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import PermName
from kourou.protocol.names import topic_problem
from kourou.protocol.priority import MESSAGE_TYPE
from kourou.wording import counted

Queues = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
Perm = Annotated[int, msgspec.Meta(ge=0, le=7)]

PERM_WORDS: Final = {
    "RW": "read and write",
    "R": "read only",
    "W": "write only",
    "-": "neither read nor write",
}
DEFAULT_QUEUES: Final = 8
"""As mqadmin updateTopic."""


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A topic to create: on the brokers with these names and all masters of these clusters; on all masters if
    neither is given."""

    topic: str
    clusters: list[str] = []
    brokers: list[str] = []
    read_queues: Queues = DEFAULT_QUEUES
    """On each broker."""
    write_queues: Queues = DEFAULT_QUEUES
    perm: Perm = PermName.READ | PermName.WRITE
    """2 is write, 4 is read, 6 both."""
    kind: TopicKind = TopicKind.NORMAL
    order: bool = False
    """Whether its queues stay the same when brokers fail."""
    attributes: dict[str, str] = {}


class TopicChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """New settings of a topic; what is not given stays as it is on each broker."""

    brokers: list[str] = []
    """All brokers of the topic if empty."""
    read_queues: Queues | None = None
    write_queues: Queues | None = None
    perm: Perm | None = None
    kind: TopicKind | None = None
    order: bool | None = None


class TopicCopy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the settings of a topic are copied to: another topic, or the same one on further brokers."""

    topic: str
    source: str = ""
    """The broker whose settings are copied; the first of the topic if empty."""
    clusters: list[str] = []
    brokers: list[str] = []


class TopicDeletionScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The clusters that a topic is deleted from; all if empty."""

    clusters: list[str] = []


# -- create, copy ------------------------------------------------------------------------------------


async def _create(call: Call[NoQuery, NewTopic]) -> Plan:
    body = call.body
    if body.kind not in MESSAGE_KINDS:
        raise bad_input("kind", f"{body.kind} topics are created by brokers; use {', '.join(MESSAGE_KINDS)}")
    attributes = dict(body.attributes)
    if body.kind is not TopicKind.NORMAL:
        attributes[MESSAGE_TYPE] = body.kind.value
    config = TopicConfig(
        topic_name=body.topic,
        read_queue_nums=body.read_queues,
        write_queue_nums=body.write_queues,
        perm=body.perm,
        order=body.order,
        attributes=attributes,
    )
    return await _creation(call, config, body.clusters, body.brokers)


async def _copy(call: Call[NoQuery, TopicCopy]) -> Plan:
    topic, body = call.path["topic"], call.body
    configs, _ = await topic_settings(call.view, topic)
    source = body.source or min(configs)
    if source not in configs:
        raise bad_input(
            "source", f"topic {topic} is not on broker {source}, but on {', '.join(sorted(configs))}"
        )
    config = msgspec.structs.replace(configs[source], topic_name=body.topic)
    return await _creation(
        call, config, body.clusters, body.brokers, origin=f" (settings of {topic} on {source})"
    )


async def _creation(
    call: Call[Any, Any], config: TopicConfig, clusters: list[str], brokers: list[str], origin: str = ""
) -> Plan:
    topic = config.topic_name
    if problem := topic_problem(topic):
        raise bad_input("topic", problem)
    masters = await chosen_masters(call.admin, clusters, brokers)
    there = (await call.view.topics(is_new=True)).data.get(topic, {})
    if taken := [master for master in masters if master.broker_name in there]:
        raise ApiError(
            HTTPStatus.CONFLICT,
            "topic_exists",
            f"topic {topic} already exists on {names_of(taken)}",
            "change it instead, or choose other brokers",
        )
    change = msgspec.structs.replace(
        config, attributes={f"+{key}": value for key, value in config.attributes.items()}
    )
    effects = [
        f"Creates topic {topic} on {master.broker_name}: {_described(config)}{origin}" for master in masters
    ]
    if config.order:
        effects.append(
            f"Records its {counted(config.write_queue_nums, 'queue')} on each broker as fixed order"
        )
    return Plan(
        effects=effects,
        warnings=_queue_warnings(config),
        commands=[
            mqadmin(call, "updateTopic", *place, *_options(change))
            for place in await place_options(call.admin, masters)
        ],
        run=lambda: _apply(call, {master: change for master in masters}),
    )


def _described(config: TopicConfig) -> str:
    queues = (
        counted(config.read_queue_nums, "queue")
        if config.read_queue_nums == config.write_queue_nums
        else f"{config.read_queue_nums} queues to read, {config.write_queue_nums} to write"
    )
    order = ", ordered" if config.order else ""
    return f"{queues}, {perm_words(config.perm)}, {message_kind(config)} messages{order}"


def perm_words(perm: int) -> str:
    """A permission in words."""
    return PERM_WORDS[perm_letters(perm)]


def _queue_warnings(config: TopicConfig) -> list[str]:
    read, write = config.read_queue_nums, config.write_queue_nums
    if write > read:
        return [f"Messages sent to the queues {read} to {write - 1} are not consumed: only {read} are read"]
    return []


def _options(config: TopicConfig) -> list[str]:
    """The options of updateTopic; attributes are changes."""
    words = ["-t", config.topic_name, "-r", str(config.read_queue_nums), "-w", str(config.write_queue_nums)]
    words += ["-p", str(config.perm)]
    if config.order:
        words += ["-o", "true"]
    if config.attributes:
        changes = [f"{key}={value}" if value else key for key, value in config.attributes.items()]
        words += ["-a", ",".join(changes)]
    return words


async def _apply(
    call: Call[Any, Any], changes: Mapping[BrokerAddress, TopicConfig], *, drops_order: bool = False
) -> Done:
    """Send each broker its settings, then record the order of those that have accepted them."""
    by_address = {master.address: (master, config) for master, config in changes.items()}
    outcomes = await on_each(
        list(by_address), lambda address: create_topic(call.admin, address, by_address[address][1])
    )
    done = named_outcomes(outcomes, changes)
    for outcome in outcomes:
        master, config = by_address[outcome.address]
        if outcome.is_done and config.order:
            done.append(await _record_order(call, master.broker_name, config))
    if drops_order:
        topic = next(iter(changes.values())).topic_name
        try:
            done += [TargetOutcome.of(one) for one in await delete_order_conf(call.admin, topic)]
        except KourouError as error:
            done.append(TargetOutcome(f"order of {topic}", False, str(error)))
    return Done(outcomes=done)


async def _record_order(call: Call[Any, Any], broker_name: str, config: TopicConfig) -> TargetOutcome:
    """The topic has been changed before: what fails here is one more outcome."""
    problem = ""
    try:
        await add_order_conf(call.admin, config.topic_name, broker_name, config.write_queue_nums)
    except KourouError as error:
        problem = str(error)
    return TargetOutcome(f"order of {config.topic_name} on {broker_name}", not problem, problem)


# -- change ------------------------------------------------------------------------------------------


async def _change(call: Call[NoQuery, TopicChange]) -> Plan:
    topic, body = call.path["topic"], call.body
    configs, problems = await _current_settings(call, topic)
    names = body.brokers or sorted(configs)
    for name in names:
        if name not in configs:
            raise bad_input("brokers", f"topic {topic} is not on broker {name}; copy it there instead")
    if body.kind is not None and body.kind not in MESSAGE_KINDS:
        raise bad_input("kind", f"{body.kind} cannot be set; use {', '.join(MESSAGE_KINDS)}")
    masters = {master.broker_name: master for master in await chosen_masters(call.admin, [], names)}
    changes: dict[BrokerAddress, TopicConfig] = {}
    effects: list[str] = []
    warnings = list(problems)
    for name in names:
        new, differences = _changed(configs[name], body)
        if differences:
            changes[masters[name]] = new
            effects.append(f"{name}: {'; '.join(differences)}")
            warnings += [f"{name}: {text}" for text in _queue_warnings(new)]
            warnings += [f"{name}: {text}" for text in _shrink_warnings(configs[name], new)]
    if not changes:
        raise bad_input("body", f"topic {topic} has these settings already on {', '.join(names)}")
    drops_order = body.order is False and any(configs[name].order for name in names)
    return Plan(
        effects=[f"Changes topic {topic}", *effects],
        warnings=list(dict.fromkeys(warnings)),
        commands=[
            mqadmin(call, "updateTopic", "-b", master.address, *_options(config))
            for master, config in changes.items()
        ]
        + ([mqadmin(call, "updateOrderConf", "-t", topic, "-m", "delete")] if drops_order else []),
        run=lambda: _apply(call, changes, drops_order=drops_order),
    )


async def _current_settings(call: Call[Any, Any], topic: str) -> tuple[dict[str, TopicConfig], list[str]]:
    """Read now, not from the cache: a plan is compared with the state of the cluster."""
    await call.view.topics(is_new=True)
    return await topic_settings(call.view, topic)


def _changed(old: TopicConfig, body: TopicChange) -> tuple[TopicConfig, list[str]]:
    """The new settings of a topic on one broker, with attributes as changes, and the differences in words."""
    attributes: dict[str, str] = {}
    differences: list[str] = []

    def note(what: str, before: object, after: object) -> None:
        if before != after:
            differences.append(f"{what} {before} → {after}")

    if body.kind is not None and message_kind(old) is not body.kind:
        attributes = {f"+{MESSAGE_TYPE}": body.kind.value}
        note("message type", message_kind(old), body.kind)
    new = msgspec.structs.replace(
        old,
        read_queue_nums=old.read_queue_nums if body.read_queues is None else body.read_queues,
        write_queue_nums=old.write_queue_nums if body.write_queues is None else body.write_queues,
        perm=old.perm if body.perm is None else body.perm,
        order=old.order if body.order is None else body.order,
        attributes=attributes,
    )
    note("queues to read", old.read_queue_nums, new.read_queue_nums)
    note("queues to write", old.write_queue_nums, new.write_queue_nums)
    note("permission", perm_words(old.perm), perm_words(new.perm))
    note("order", *("fixed" if order else "not fixed" for order in (old.order, new.order)))
    return new, differences


def _shrink_warnings(old: TopicConfig, new: TopicConfig) -> list[str]:
    first, last = new.read_queue_nums, old.read_queue_nums - 1
    texts = []
    if first <= last:
        texts.append(f"messages in the queues {first} to {last} are no longer consumed")
    if old.perm & PermName.READ and not new.perm & PermName.READ:
        texts.append("consumers no longer get messages")
    if old.perm & PermName.WRITE and not new.perm & PermName.WRITE:
        texts.append("sends are rejected")
    return texts


# -- delete ------------------------------------------------------------------------------------------


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """A group that uses a topic which is deleted."""

    group: str
    members: int
    lag: int | None


async def _delete(call: Call[NoQuery, TopicDeletionScope]) -> Plan:
    topic = call.path["topic"]
    configs, problems = await _current_settings(call, topic)
    masters = await call.admin.masters()
    kind = topic_kind(topic, configs.values(), own_topics(masters))
    if kind is TopicKind.SYSTEM:
        raise bad_input("topic", f"{topic} belongs to the brokers and cannot be deleted")
    having = [master for master in masters if master.broker_name in configs]
    clusters = call.body.clusters or sorted({master.cluster for master in having})
    for cluster in clusters:
        if not any(master.cluster == cluster for master in having):
            raise bad_input("clusters", f"topic {topic} is not in cluster {cluster}")
    uses = await _uses(call, topic)
    online = [use for use in uses if use.members]
    effects = [
        f"Deletes topic {topic} from cluster {cluster} with all its messages: "
        f"{names_of(master for master in having if master.cluster == cluster)}"
        for cluster in clusters
    ]
    if uses:
        effects.append(f"Deletes the offsets of these groups in it: {', '.join(use.group for use in uses)}")
    return Plan(
        effects=effects,
        warnings=[*problems, *(f"{use.group} has {counted(use.members, 'member')} online" for use in online)],
        commands=[mqadmin(call, "deleteTopic", "-c", cluster, "-t", topic) for cluster in clusters],
        details={"messages": await _message_count(call, topic), "groups": uses},
        run=lambda: _run_delete(call, topic, clusters, masters),
    )


async def _uses(call: Call[Any, Any], topic: str) -> list[GroupUse]:
    lags = (await call.view.lag_table()).data
    groups = lags.groups_of.get(topic, [])
    members = await asyncio.gather(*(call.view.members(group) for group in groups))
    return [
        GroupUse(
            group=group,
            members=found.count,
            lag=lags.by_pair[group, topic].lag,
        )
        for group, found in zip(groups, members, strict=True)
    ]


async def _message_count(call: Call[Any, Any], topic: str) -> int | None:
    try:
        status = await topic_status(call.admin, topic)
    except KourouError:
        return None
    return sum(queue.max_offset - queue.min_offset for queue in status.queues)


async def _run_delete(
    call: Call[Any, Any], topic: str, clusters: Sequence[str], masters: Sequence[BrokerAddress]
) -> Done:
    outcomes: list[Outcome] = []
    for cluster in clusters:
        try:
            deletion = await delete_topic(call.admin, topic, cluster, may_be_missing=True)
        except KourouError as error:
            if not outcomes:
                raise
            outcomes.append(Outcome(cluster, str(error)))
            continue
        outcomes += [*deletion.brokers, *deletion.namesrvs]
    return Done(outcomes=named_outcomes(outcomes, masters))


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Change(path="/topics", summary="Create a topic", body=NewTopic, planner=_create),
    Change(
        method="PUT",
        path="/topics/{topic}",
        summary="Change settings of a topic",
        body=TopicChange,
        planner=_change,
    ),
    Change(
        method="DELETE",
        path="/topics/{topic}",
        summary="Delete a topic with its messages",
        body=TopicDeletionScope,
        planner=_delete,
    ),
    Change(
        path="/topics/{topic}/copies",
        summary="Copy the settings of a topic to another topic or to further brokers",
        body=TopicCopy,
        planner=_copy,
    ),
)
