"""Groups as a JSON file: export, and import into a cluster. The file is described in setting_files.py."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kourou.admin.groups import update_group, update_groups
from kourou.console.api.setting_files import (
    MAX_ENTRIES,
    ImportPlaces,
    NewSettings,
    SettingsImport,
    by_settings,
    file_endpoints,
    file_response,
)
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Plan
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.names import group_problem, is_system_group


class GroupEntry(SubscriptionGroupConfig, kw_only=True):
    """The settings of a group in the file; what is missing gets the broker's default."""

    group_name: str
    brokers: list[str] = []

    @classmethod
    def of(cls, config: SubscriptionGroupConfig, brokers: list[str]) -> GroupEntry:
        """The settings of a group on these brokers."""
        return cls(**msgspec.structs.asdict(config), brokers=brokers)

    def config(self) -> SubscriptionGroupConfig:
        """For the request that creates it: attributes are changes."""
        settings = msgspec.structs.asdict(self)
        del settings["brokers"]
        settings["attributes"] = {f"+{key}": value for key, value in self.attributes.items()}
        return SubscriptionGroupConfig(**settings)


class GroupImport(ImportPlaces, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Groups to create."""

    groups: Annotated[list[GroupEntry], msgspec.Meta(min_length=1, max_length=MAX_ENTRIES)]


async def _export(call: Call[NoQuery, NoBody], request: Request) -> Response:
    reading = await call.view.groups(is_new=True)
    entries = [
        GroupEntry.of(config, brokers)
        for group, configs in sorted(reading.data.items())
        if not is_system_group(group)
        for config, brokers in by_settings(configs)
    ]
    return file_response(entries, "groups.json", reading.problems)


async def _import(call: Call[NoQuery, GroupImport]) -> Plan:
    admin = call.admin
    groups: SettingsImport[SubscriptionGroupConfig] = SettingsImport(
        noun="group",
        problem=group_problem,
        create_all=lambda address, configs: update_groups(admin, [address], configs),
        create_one=lambda address, config: update_group(admin, [address], config),
    )
    entries = [NewSettings(entry.group_name, entry.config(), entry.brokers) for entry in call.body.groups]
    return await groups.plan(call, entries, (await call.view.groups(is_new=True)).data)


ENDPOINTS: Final[tuple[Endpoint, ...]] = file_endpoints("group", GroupEntry, GroupImport, _export, _import)
