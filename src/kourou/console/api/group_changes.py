"""Changes of consumer groups: create, change, delete."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from kourou.admin.groups import delete_group, update_group
from kourou.admin.session import BrokerAddress
from kourou.admin.targets import Outcome, on_each
from kourou.admin.topics import delete_topic, topic_status
from kourou.console.api.groups import group_settings
from kourou.console.api.places import chosen_masters, mqadmin, named_outcomes, names_of, place_options
from kourou.console.api_errors import ApiError, bad_input
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoQuery, Plan, TargetOutcome
from kourou.errors import KourouError
from kourou.protocol.bodies import GroupRetryPolicy, SubscriptionGroupConfig, encode_body
from kourou.protocol.names import dlq_topic, group_problem, is_system_group, retry_topic
from kourou.wording import counted

Count = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
Retries = Annotated[int, msgspec.Meta(ge=-1, le=1_000_000)]
BrokerId = Annotated[int, msgspec.Meta(ge=0)]


class GroupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a group. What is not given stays as it is, or gets mqadmin's default in a new group."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    """Whether a new member may start at the oldest message."""
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: Count | None = None
    retry_max_times: Retries | None = None
    """Retries before a message becomes a dead letter."""
    group_retry_policy: GroupRetryPolicy | None = None
    broker_id: BrokerId | None = None
    """The broker it reads from; 0 is the master."""
    which_broker_when_consume_slowly: BrokerId | None = None
    """The broker it reads from when it lags far behind."""
    notify_consumer_ids_changed_enable: bool | None = None
    """Whether members are notified of each other at once."""

    def changes(self) -> dict[str, Any]:
        """The given settings."""
        return {
            name: value
            for name in GroupSettings.__struct_fields__
            if (value := getattr(self, name)) is not None
        }


class NewGroup(GroupSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A group to create: on the brokers with these names and all masters of these clusters; on all masters if
    neither is given."""

    group: str
    clusters: list[str] = []
    brokers: list[str] = []


class GroupChange(GroupSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """New settings of a group."""

    brokers: list[str] = []
    """All brokers of the group if empty."""


class GroupDeletionScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is deleted of a group. From whole clusters, retry and dead-letter topics are deleted, too."""

    brokers: list[str] = []
    """Only on these; from all clusters if empty."""
    drops_offsets: bool = True


# -- create, change ----------------------------------------------------------------------------------


async def _create(call: Call[NoQuery, NewGroup]) -> Plan:
    body = call.body
    if problem := group_problem(body.group):
        raise bad_input("group", problem)
    masters = await chosen_masters(call.admin, body.clusters, body.brokers)
    there = (await call.view.groups(is_new=True)).data.get(body.group, {})
    if taken := [master for master in masters if master.broker_name in there]:
        raise ApiError(
            HTTPStatus.CONFLICT,
            "group_exists",
            f"group {body.group} already exists on {names_of(taken)}",
            "change it instead, or choose other brokers",
        )
    # As mqadmin updateSubGroup without options.
    defaults = SubscriptionGroupConfig(
        group_name=body.group, consume_from_min_enable=False, consume_broadcast_enable=False
    )
    config = msgspec.structs.replace(defaults, **body.changes())
    settings = _differences(defaults, config)
    return Plan(
        effects=[
            f"Creates group {body.group} on {master.broker_name}: {'; '.join(settings) or 'default settings'}"
            for master in masters
        ],
        commands=[
            mqadmin(call, "updateSubGroup", *place, *_options(config))
            for place in await place_options(call.admin, masters)
        ],
        run=lambda: _apply(call, {master: config for master in masters}),
    )


async def _change(call: Call[NoQuery, GroupChange]) -> Plan:
    group, body = call.path["group"], call.body
    configs, problems = await group_settings(call.view, group, is_new=True)
    names = body.brokers or sorted(configs)
    for name in names:
        if name not in configs:
            raise bad_input("brokers", f"group {group} is not on broker {name}")
    if not names:
        raise bad_input("brokers", f"group {group} has offsets, but no settings on any broker; create it")
    masters = {master.broker_name: master for master in await chosen_masters(call.admin, [], names)}
    changes: dict[BrokerAddress, SubscriptionGroupConfig] = {}
    effects = []
    for name in names:
        # A broker expects attributes as changes, and there are none.
        new = msgspec.structs.replace(configs[name], **body.changes(), attributes={})
        if differences := _differences(configs[name], new):
            changes[masters[name]] = new
            effects.append(f"{name}: {'; '.join(differences)}")
    if not changes:
        raise bad_input("body", f"group {group} has these settings already on {', '.join(names)}")
    warnings = list(problems)
    members = (await call.view.members(group)).count
    if body.consume_enable is False and members:
        warnings.append(
            f"{group} has {counted(members, 'member')} online; messages are no longer delivered to the group"
        )
    return Plan(
        effects=[f"Changes group {group}", *effects],
        warnings=warnings,
        commands=[
            mqadmin(call, "updateSubGroup", "-b", master.address, *_options(config))
            for master, config in changes.items()
        ],
        run=lambda: _apply(call, changes),
    )


_WORDS: Final = {
    "consume_enable": "may consume",
    "consume_from_min_enable": "may start at the oldest message",
    "consume_broadcast_enable": "may broadcast",
    "consume_message_orderly": "consumes in order",
    "retry_queue_nums": "retry queues",
    "retry_max_times": "retries",
    "broker_id": "reads from broker id",
    "which_broker_when_consume_slowly": "reads from broker id when it lags",
    "notify_consumer_ids_changed_enable": "members are notified of each other at once",
}


def _differences(old: SubscriptionGroupConfig, new: SubscriptionGroupConfig) -> list[str]:
    found = [
        f"{words} {_shown(getattr(old, name))} → {_shown(getattr(new, name))}"
        for name, words in _WORDS.items()
        if getattr(old, name) != getattr(new, name)
    ]
    if old.group_retry_policy != new.group_retry_policy:
        found.append(f"retry policy {_policy(old)} → {_policy(new)}")
    return found


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _policy(config: SubscriptionGroupConfig) -> str:
    return encode_body(config.group_retry_policy).decode()


def _options(config: SubscriptionGroupConfig) -> list[str]:
    """The options of updateSubGroup."""
    words = ["-g", config.group_name]
    for letter, value in (
        ("-s", config.consume_enable),
        ("-m", config.consume_from_min_enable),
        ("-d", config.consume_broadcast_enable),
        ("-o", config.consume_message_orderly),
        ("-q", config.retry_queue_nums),
        ("-r", config.retry_max_times),
        ("-i", config.broker_id),
        ("-w", config.which_broker_when_consume_slowly),
        ("-a", config.notify_consumer_ids_changed_enable),
    ):
        words += [letter, str(value).lower()]
    if config.group_retry_policy != GroupRetryPolicy():
        words += ["-p", _policy(config)]
    return words


async def _apply(call: Call[Any, Any], changes: Mapping[BrokerAddress, SubscriptionGroupConfig]) -> Done:
    by_address = {master.address: config for master, config in changes.items()}
    outcomes = await on_each(
        list(by_address), lambda address: update_group(call.admin, [address], by_address[address])
    )
    return Done(outcomes=named_outcomes(outcomes, changes))


# -- delete ------------------------------------------------------------------------------------------


class DeletedLag(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a topic that a deleted group has not consumed."""

    topic: str
    lag: int


async def _delete(call: Call[NoQuery, GroupDeletionScope]) -> Plan:
    group, body, view = call.path["group"], call.body, call.view
    if is_system_group(group):
        raise bad_input("group", f"{group} belongs to the brokers and cannot be deleted")
    configs, problems = await group_settings(view, group, is_new=True)
    lags = (await view.lag_table()).data
    with_offsets = {
        queue.broker_name for topic in lags.topics_of.get(group, ()) for queue in lags.brokers[group, topic]
    }
    names = body.brokers or sorted({*configs, *with_offsets})
    for name in names:
        if name not in configs and name not in with_offsets:
            raise bad_input("brokers", f"group {group} is not on broker {name}")
    masters = [master for master in await chosen_masters(call.admin, [], names)]
    topics = [] if body.brokers else await _own_topics(call, group)
    clusters = [] if body.brokers else sorted({master.cluster for master in masters})
    offsets = " with its offsets" if body.drops_offsets else "; its offsets stay"
    effects = [f"Deletes group {group} from {names_of(masters)}{offsets}"]
    effects += [f"Deletes topic {topic}" for topic in topics]
    members = (await view.members(group)).count
    warnings = list(problems)
    if members:
        warnings.append(
            f"{group} has {counted(members, 'member')} online; a connected consumer may create it again"
        )
    if dlq_topic(group) in topics:
        warnings.append(f"The dead letters in {dlq_topic(group)} are deleted")
    removes = ("-r", "true") if body.drops_offsets else ()
    places = (
        [("-b", master.address) for master in masters]
        if body.brokers
        else [("-c", name) for name in clusters]
    )
    return Plan(
        effects=effects,
        warnings=warnings,
        commands=[mqadmin(call, "deleteSubGroup", *place, "-g", group, *removes) for place in places],
        details={
            "dead_letters": await _message_count(call, dlq_topic(group)) if topics else 0,
            "lags": [
                DeletedLag(topic=topic, lag=lags.by_pair[group, topic].lag)
                for topic in lags.topics_of.get(group, ())
            ],
        },
        run=lambda: _run_delete(call, group, masters, clusters, topics),
    )


async def _own_topics(call: Call[Any, Any], group: str) -> list[str]:
    """The retry and dead-letter topics of a group that exist."""
    known = (await call.view.topics(is_new=True)).data
    return [topic for topic in (retry_topic(group), dlq_topic(group)) if topic in known]


async def _message_count(call: Call[Any, Any], topic: str) -> int:
    try:
        status = await topic_status(call.admin, topic)
    except KourouError:
        return 0
    return sum(queue.max_offset - queue.min_offset for queue in status.queues)


async def _run_delete(
    call: Call[NoQuery, GroupDeletionScope],
    group: str,
    masters: list[BrokerAddress],
    clusters: list[str],
    topics: list[str],
) -> Done:
    addresses = [master.address for master in masters]
    outcomes: list[Outcome] = await delete_group(
        call.admin, addresses, group, drops_offsets=call.body.drops_offsets
    )
    done = named_outcomes(outcomes, masters)
    for topic in topics:
        for cluster in clusters:
            try:
                deletion = await delete_topic(call.admin, topic, cluster, may_be_missing=True)
            except KourouError as error:
                done.append(TargetOutcome(f"{topic} in {cluster}", False, str(error)))
                continue
            found = named_outcomes([*deletion.brokers, *deletion.namesrvs], masters)
            done += [msgspec.structs.replace(one, target=f"{topic} on {one.target}") for one in found]
    return Done(outcomes=done)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Change(path="/groups", summary="Create a consumer group", body=NewGroup, planner=_create),
    Change(
        method="PUT",
        path="/groups/{group}",
        summary="Change settings of a consumer group",
        body=GroupChange,
        planner=_change,
    ),
    Change(
        method="DELETE",
        path="/groups/{group}",
        summary="Delete a consumer group with its retry and dead-letter topics",
        body=GroupDeletionScope,
        planner=_delete,
    ),
)
