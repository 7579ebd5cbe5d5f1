"""Name servers: what each knows, their configuration, and their KV configuration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from kourou.admin.namesrvs import (
    ServerConfig,
    delete_kv_config,
    get_kv_config,
    namesrv_configs,
    put_kv_config,
    update_namesrv_config,
)
from kourou.admin.session import Admin, command_line
from kourou.client.core.settings import ClientOptions
from kourou.config import NamesrvConfig
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoBody, NoQuery, Plan, Read, TargetOutcome
from kourou.console.refusals import readable
from kourou.console.responsive_admin import ResponsiveAdmin
from kourou.errors import KourouError, ResponseError
from kourou.protocol.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class NamesrvItem:
    """One name server, and the brokers that are registered there."""

    address: str
    brokers: list[str]
    """`cluster/name:id` of each."""
    config: dict[str, str]
    problem: str = ""
    """Why it is not known what is registered there."""
    config_problem: str = ""
    """Why its configuration cannot be read."""


class Namesrvs(msgspec.Struct, frozen=True, kw_only=True):
    """All name servers."""

    items: list[NamesrvItem]
    differences: list[str]
    """Brokers that not every name server knows: clients see different routes."""
    commands: list[str]


async def _list(call: Call[NoQuery, NoBody]) -> Namesrvs:
    items = await call.view.shared("namesrvs", lambda: _items(call.admin))
    return Namesrvs(
        items=items,
        differences=_differences([item for item in items if not item.problem]),
        commands=[command_line(call.admin.namesrvs, "getNamesrvConfig")],
    )


async def _items(admin: Admin) -> list[NamesrvItem]:
    configs, items = await asyncio.gather(
        _configs(admin), asyncio.gather(*(_item(admin, address) for address in admin.namesrvs))
    )
    read = {one.address: one for one in configs}
    return [
        replace(item, config=read[item.address].config, config_problem=readable(read[item.address].problem))
        for item in items
    ]


async def _configs(admin: Admin) -> list[ServerConfig]:
    try:
        return await namesrv_configs(admin)
    except KourouError as error:
        return [ServerConfig(address, {}, str(error)) for address in admin.namesrvs]


async def _item(admin: Admin, address: str) -> NamesrvItem:
    options: ClientOptions = {**admin.options, "namesrv": address}
    try:
        async with ResponsiveAdmin(**options) as one:
            brokers = await one.brokers()
    except KourouError as error:
        return NamesrvItem(address, [], {}, readable(str(error)))
    return NamesrvItem(address, [f"{one.cluster}/{one.broker_name}:{one.broker_id}" for one in brokers], {})


def _differences(items: list[NamesrvItem]) -> list[str]:
    known = sorted({broker for item in items for broker in item.brokers})
    return [
        f"{broker} is not registered at {item.address}"
        for broker in known
        for item in items
        if broker not in item.brokers
    ]


class NamesrvConfigChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new value of a key, for all name servers."""

    key: str
    value: str


async def _change_config(call: Call[NoQuery, NamesrvConfigChange]) -> Plan:
    key, value = call.body.key, call.body.value
    configs = await namesrv_configs(call.admin)
    effects = [
        f"Sets {key} of name server {one.address} to {value!r}; it is {one.config.get(key, '')!r} now"
        for one in configs
    ]
    note = NamesrvConfig.change_note([key])

    async def run() -> Done:
        updates = await update_namesrv_config(call.admin, key, value)
        return Done([TargetOutcome.of(one) for one in updates])

    return Plan(
        effects=effects,
        warnings=[note] if note else [],
        commands=[command_line(call.admin.namesrvs, "updateNamesrvConfig", "-k", key, "-v", value)],
        run=run,
    )


# -- KV configuration --------------------------------------------------------------------------------


class KvQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key in a namespace."""

    namespace: str
    key: str


class KvValue(msgspec.Struct, frozen=True):
    """A value; None if there is none."""

    value: str | None


class KvChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value to store; None deletes the key."""

    namespace: str
    key: str
    value: str | None = None


async def _kv(call: Call[KvQuery, NoBody]) -> KvValue:
    return KvValue(await _kv_value(call.admin, call.query.namespace, call.query.key))


async def _kv_value(admin: Admin, namespace: str, key: str) -> str | None:
    try:
        return await get_kv_config(admin, namespace, key)
    except ResponseError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise


async def _change_kv(call: Call[NoQuery, KvChange]) -> Plan:
    change, admin = call.body, call.admin
    now = await _kv_value(admin, change.namespace, change.key)
    where = f"{change.key} in namespace {change.namespace}, on every name server"
    is_now = "it does not exist now" if now is None else f"it is {now!r} now"
    words = ("-s", change.namespace, "-k", change.key)
    if change.value is None:
        effect = f"Deletes {where}; {is_now}"
        command = command_line(admin.namesrvs, "deleteKvConfig", *words)
    else:
        effect = f"Sets {where}, to {change.value!r}; {is_now}"
        command = command_line(admin.namesrvs, "updateKvConfig", *words, "-v", change.value)

    async def run() -> Done:
        if change.value is None:
            outcomes = await delete_kv_config(admin, change.namespace, change.key)
        else:
            outcomes = await put_kv_config(admin, change.namespace, change.key, change.value)
        return Done([TargetOutcome.of(one) for one in outcomes])

    return Plan(effects=[effect], commands=[command], run=run)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(path="/namesrvs", summary="All name servers", handler=_list, returns=Namesrvs),
    Change(
        method="PUT",
        path="/namesrvs/config",
        summary="Change a key of all name servers",
        body=NamesrvConfigChange,
        planner=_change_config,
    ),
    Read(
        path="/namesrvs/kv",
        summary="A value of the KV configuration",
        query=KvQuery,
        handler=_kv,
        returns=KvValue,
    ),
    Change(
        method="PUT",
        path="/namesrvs/kv",
        summary="Store or delete a value of the KV configuration",
        body=KvChange,
        planner=_change_kv,
    ),
)
