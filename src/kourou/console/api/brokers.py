"""Brokers: list, state, configuration, write permission, cleanup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from kourou.admin.brokers import (
    broker_configs,
    broker_epochs,
    clean_expired_consume_queues,
    clean_unused_topics,
    delete_expired_commit_logs,
    ha_statuses,
    update_broker_config,
)
from kourou.admin.clusters import BrokerSummary
from kourou.admin.namesrvs import WritePermChange, add_write_perm, wipe_write_perm
from kourou.admin.replication import SlaveLag
from kourou.admin.session import command_line
from kourou.admin.targets import ConfigUpdate
from kourou.config import BrokerConfig
from kourou.config.keys import BadValueError
from kourou.console.api_errors import bad_input, not_found
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoBody, NoQuery, Plan, Read, TargetOutcome
from kourou.console.history import GET_TOTAL, PUT_TOTAL
from kourou.console.paging import Page, PageQuery, cut_page
from kourou.errors import KourouError
from kourou.protocol.bodies import EpochEntryCache, HARuntimeInfo
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.names import COMPILED_KERNEL
from kourou.wording import counted


@dataclass(frozen=True, slots=True)
class BrokerItem:
    """One broker: its place, load and lag. `in` counts stored messages, `out` delivered ones."""

    cluster: str
    broker_name: str
    broker_id: int
    role: str
    address: str
    version: str
    in_tps: float
    out_tps: float
    in_today: int
    out_today: int
    in_yesterday: int
    out_yesterday: int
    disk_ratio: float
    lag_bytes: int | None
    """How far a slave is behind its master; None for a master, or if it is not known."""
    lag_ms: int | None
    problem: str
    """Why it cannot be read, or why a slave does not follow its master; empty if all is well."""

    @classmethod
    def of(cls, broker: BrokerSummary, slave: SlaveLag | None) -> BrokerItem:
        """A broker as it was read."""
        return cls(
            broker.cluster,
            broker.broker_name,
            broker.broker_id,
            "master" if broker.broker_id == MASTER_ID else "slave",
            broker.address,
            broker.text("brokerVersionDesc"),
            broker.put_tps,
            broker.get_tps,
            broker.number(PUT_TOTAL) - broker.number("msgPutTotalTodayMorning"),
            broker.number(GET_TOTAL) - broker.number("msgGetTotalTodayMorning"),
            broker.number("msgPutTotalTodayMorning") - broker.number("msgPutTotalYesterdayMorning"),
            broker.number("msgGetTotalTodayMorning") - broker.number("msgGetTotalYesterdayMorning"),
            broker.disk_ratio,
            slave.lag_bytes if slave else None,
            slave.lag_ms if slave else None,
            broker.problem or (slave.problem if slave else ""),
        )


_COLUMNS: Final = {
    column: attrgetter(column)
    for column in ("cluster", "broker_name", "broker_id", "address", "version", "in_tps", "out_tps")
    + ("in_today", "out_today", "in_yesterday", "out_yesterday", "disk_ratio", "lag_bytes", "lag_ms")
}


async def broker_items(call: Call[Any, Any]) -> list[BrokerItem]:
    """All brokers of the cluster."""
    brokers = await call.view.brokers()
    slaves = {slave.address: slave for slave in await call.view.slaves()}
    return [BrokerItem.of(broker, slaves.get(broker.address)) for broker in brokers.data]


async def _list(call: Call[PageQuery, NoBody]) -> Page[BrokerItem]:
    reading = await call.view.brokers()
    return cut_page(
        await broker_items(call),
        call.query,
        name=lambda item: f"{item.cluster} {item.broker_name} {item.address}",
        columns=_COLUMNS,
        as_of=reading.as_of,
        problems=reading.problems,
        commands=[command_line(call.admin.namesrvs, "clusterList")],
    )


async def _broker(call: Call[Any, Any]) -> BrokerSummary:
    """The broker that the path names; ApiError 404 if there is none."""
    name, number = call.path["name"], call.path["id"]
    brokers = (await call.view.brokers()).data
    for broker in brokers:
        if (broker.broker_name, str(broker.broker_id)) == (name, number):
            return broker
    there = ", ".join(f"{one.broker_name} {one.broker_id}" for one in brokers) or "none"
    raise not_found(f"no broker {name} with the id {number} is registered", f"there are: {there}")


# -- state -------------------------------------------------------------------------------------------


class BrokerDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one broker, by RocketMQ's names."""

    broker: BrokerItem
    runtime: dict[str, str]
    replication: HARuntimeInfo | None
    """None if the broker does not report it (RocketMQ 4)."""
    epochs: EpochEntryCache | None
    commands: list[str]


async def _detail(call: Call[NoQuery, NoBody]) -> BrokerDetail:
    broker = await _broker(call)
    slaves = {slave.address: slave for slave in await call.view.slaves()}
    replication, epochs = None, None
    try:
        replication = (await ha_statuses(call.admin, [broker.address]))[0].status
        epochs = (await broker_epochs(call.admin, [broker.address]))[0].epochs
    except KourouError:
        pass  # not known to RocketMQ 4, nor to 5 without its controller
    return BrokerDetail(
        broker=BrokerItem.of(broker, slaves.get(broker.address)),
        runtime=broker.runtime,
        replication=replication,
        epochs=epochs,
        commands=[command_line(call.admin.namesrvs, "brokerStatus", "-b", broker.address)],
    )


# -- configuration -----------------------------------------------------------------------------------


class ConfigItem(msgspec.Struct, frozen=True):
    """One key of a broker's configuration."""

    key: str
    value: str
    section: str
    doc: str
    """What it does; empty for a key that Kourou does not know."""
    default: str
    is_live: bool
    """Whether a change takes effect at once, on Kourou's brokers; else at the next start."""
    is_changeable: bool


class ConfigQuery(PageQuery, frozen=True, kw_only=True):
    """Which keys to list."""

    with_effect: bool = False
    """Without those that have no effect on a broker of Kourou."""


class ConfigChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New values of keys."""

    values: dict[str, str]
    scope: Literal["broker", "cluster"] = "broker"
    """`cluster` changes all brokers of the same cluster."""


async def _config(call: Call[ConfigQuery, NoBody]) -> Page[ConfigItem]:
    broker = await _broker(call)
    found = (await broker_configs(call.admin, [broker.address]))[0]
    known = BrokerConfig.known_keys()
    is_ours = _is_kourou(broker)
    protected = found.config.get("configBlackList", "").split(";")
    items = []
    for name, value in sorted(found.config.items()):
        key = known.find(name)
        # What has no effect here may have one on Apache's brokers.
        has_effect = not (is_ours and key is not None and key.instead)
        if call.query.with_effect and not has_effect:
            continue
        is_fixed = name in protected or not has_effect or (is_ours and key is not None and key.protected)
        items.append(
            ConfigItem(
                name,
                "***" if value and _is_secret(name) else value,
                key.section if key else "",
                (key.doc if has_effect else key.instead) if key else "",
                _text(key.default) if key else "",
                key.live if key else True,
                not is_fixed,
            )
        )
    return cut_page(
        items,
        call.query,
        name=lambda item: f"{item.key} {item.doc}",
        columns={"key": lambda item: item.key.lower(), "section": lambda item: item.section},
        commands=[command_line(call.admin.namesrvs, "getBrokerConfig", "-b", broker.address)],
    )


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


async def _change_config(call: Call[NoQuery, ConfigChange]) -> Plan:
    broker = await _broker(call)
    if not call.body.values:
        raise bad_input("values", "no key is given")
    brokers = [broker]
    if call.body.scope == "cluster":
        brokers = [one for one in (await call.view.brokers()).data if one.cluster == broker.cluster]
    addresses = [one.address for one in brokers]
    configs = {found.address: found.config for found in await broker_configs(call.admin, addresses)}
    for one in brokers:
        if _is_kourou(one):
            _check_values(call.body.values, configs[one.address])
    effects = [
        _config_effect(one, key, configs[one.address].get(key), value, is_secret=_is_secret(key))
        for one in brokers
        for key, value in sorted(call.body.values.items())
    ]
    note = BrokerConfig.change_note(call.body.values)
    flags = ("-b", broker.address) if call.body.scope == "broker" else ("-c", broker.cluster)
    return Plan(
        effects=effects,
        warnings=[note] if note else [],
        commands=[
            command_line(call.admin.namesrvs, "updateBrokerConfig", *flags, "-k", key, "-v", value)
            for key, value in sorted(call.body.values.items())
        ],
        run=lambda: _update(call, addresses),
        is_secret=any(map(_is_secret, call.body.values)),
    )


def _is_kourou(broker: BrokerSummary) -> bool:
    return COMPILED_KERNEL in broker.runtime


def _check_values(values: Mapping[str, str], config: Mapping[str, str]) -> None:
    """ApiError 400 for what a broker of Kourou with this configuration would refuse."""
    known = BrokerConfig.known_keys()
    for name, value in sorted(values.items()):
        key = known.find(name)
        if key is None:
            if name not in config and BrokerConfig.other_keys().find(name) is None:
                near = known.nearest(name)
                raise bad_input(name, "there is no such key" + (f"; did you mean {near}?" if near else ""))
            continue
        try:
            key.parse(value)
        except BadValueError as error:
            raise bad_input(name, str(error)) from None


def _is_secret(name: str) -> bool:
    """Whether the value of a key is never shown: passwords of Kourou's brokers and of Apache's."""
    key = BrokerConfig.known_keys().find(name) or BrokerConfig.other_keys().find(name)
    return key is not None and key.secret


def _config_effect(broker: BrokerSummary, key: str, old: str | None, new: str, *, is_secret: bool) -> str:
    where = f"{broker.broker_name} ({broker.address})"
    if is_secret:
        return f"Sets {key} of {where} to a new value, which is not shown"
    if old is None:
        return f"Sets {key} of {where} to {new!r}; it is not set now"
    return f"Sets {key} of {where} to {new!r}; it is {old!r} now"


async def _update(call: Call[NoQuery, ConfigChange], addresses: Sequence[str]) -> Done:
    outcomes: list[TargetOutcome] = []
    notes: list[str] = []
    for key, value in sorted(call.body.values.items()):
        updates = await _each_update(call, addresses, key, value)
        outcomes += [TargetOutcome(f"{one.address} {key}", one.is_done, one.problem) for one in updates]
        notes += [f"{one.address}: {one.note}" for one in updates if one.note]
    return Done(outcomes, notes)


async def _each_update(
    call: Call[NoQuery, ConfigChange], addresses: Sequence[str], key: str, value: str
) -> list[ConfigUpdate]:
    try:
        return await update_broker_config(call.admin, addresses, key, value)
    except KourouError as error:
        return [ConfigUpdate(address, str(error)) for address in addresses]


# -- write permission and cleanup --------------------------------------------------------------------


class WritePermission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether producers may use a broker."""

    is_writable: bool


async def _change_permission(call: Call[NoQuery, WritePermission]) -> Plan:
    broker = await _broker(call)
    name, is_writable = broker.broker_name, call.body.is_writable
    command = "addWritePerm" if is_writable else "wipeWritePerm"
    if is_writable:
        effect = f"Name servers let producers use {name} again"
    else:
        effect = f"Name servers no longer lead producers to {name}; consumers continue"

    async def run() -> Done:
        change = add_write_perm if is_writable else wipe_write_perm
        changes: list[WritePermChange] = await change(call.admin, name)
        outcomes = [TargetOutcome(one.namesrv, not one.problem, one.problem) for one in changes]
        return Done(outcomes, [asdict(one) for one in changes])

    return Plan(
        effects=[effect, f"Applies to {counted(len(call.admin.namesrvs), 'name server')}"],
        warnings=[] if is_writable else ["A broker that registers a changed topic is writable for it again"],
        commands=[command_line(call.admin.namesrvs, command, "-b", name)],
        run=run,
    )


_CLEANUPS: Final = {
    "expired_consume_queues": (
        clean_expired_consume_queues,
        "cleanExpiredCQ",
        "Deletes ConsumeQueue files of {name} whose messages have been deleted",
    ),
    "unused_topics": (
        clean_unused_topics,
        "cleanUnusedTopic",
        "Deletes the queue files of topics that no longer exist on {name}",
    ),
    "expired_commit_log": (
        delete_expired_commit_logs,
        "deleteExpiredCommitLog",
        "Deletes CommitLog files of {name} that are older than fileReservedTime, now and not at deleteWhen",
    ),
}


class Cleanup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to delete from a broker's store."""

    what: Literal["expired_consume_queues", "unused_topics", "expired_commit_log"]


async def _clean(call: Call[NoQuery, Cleanup]) -> Plan:
    broker = await _broker(call)
    action, command, effect = _CLEANUPS[call.body.what]

    async def run() -> Done:
        return Done([TargetOutcome.of(one) for one in await action(call.admin, [broker.address])])

    return Plan(
        effects=[effect.format(name=f"{broker.broker_name} ({broker.address})")],
        commands=[command_line(call.admin.namesrvs, command, "-b", broker.address)],
        run=run,
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(path="/brokers", summary="All brokers", query=PageQuery, handler=_list, returns=Page[BrokerItem]),
    Read(path="/brokers/{name}/{id}", summary="The state of a broker", handler=_detail, returns=BrokerDetail),
    Read(
        path="/brokers/{name}/{id}/config",
        summary="The configuration of a broker",
        query=ConfigQuery,
        handler=_config,
        returns=Page[ConfigItem],
    ),
    Change(
        method="PUT",
        path="/brokers/{name}/{id}/config",
        summary="Change keys of a broker, or of all brokers of its cluster",
        body=ConfigChange,
        planner=_change_config,
    ),
    Change(
        method="PUT",
        path="/brokers/{name}/{id}/write-permission",
        summary="Lead producers to a broker, or away from it",
        body=WritePermission,
        planner=_change_permission,
    ),
    Change(
        path="/brokers/{name}/{id}/cleanup",
        summary="Delete what is no longer needed from a broker's store",
        body=Cleanup,
        planner=_clean,
    ),
)
