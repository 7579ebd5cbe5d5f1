"""Settings of topics or groups as a JSON file: what their export and import have in common.

The file is a list of settings as mqadmin reads it (`updateTopicList`, `updateSubGroupList`). Each entry also
has `brokers`, the names of the brokers with these settings; what differs between brokers has several entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kourou.admin.session import BrokerAddress
from kourou.admin.targets import Outcome
from kourou.console.api.places import chosen_masters, named_outcomes
from kourou.console.api_errors import ApiError, bad_input, not_permitted
from kourou.console.endpoints import Call, Change, Done, Endpoint, Plan, Raw, Role
from kourou.console.refusals import are_about_permission
from kourou.errors import KourouError, ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.wording import counted

MAX_ENTRIES: Final = 20_000
_SHOWN_NAMES: Final = 10
_BATCH: Final = 500
"""Settings in one request: a broker answers it when all are stored."""

ConfigT = TypeVar("ConfigT")


# -- export ------------------------------------------------------------------------------------------


def file_response(entries: list[Any], name: str, problems: list[str]) -> Response:
    """The file as a download. ApiError 502 if there are problems: what the file lacks would go unnoticed; 403
    if they are missing permissions."""
    if are_about_permission(problems):
        raise not_permitted("the file would be incomplete", problems)
    if problems:
        raise ApiError(
            HTTPStatus.BAD_GATEWAY,
            "incomplete",
            f"the file would be incomplete: {'; '.join(problems)}",
            "export again when all brokers can be reached",
        )
    return Response(
        msgspec.json.format(msgspec.json.encode(entries), indent=2),
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
        media_type="application/json",
    )


def by_settings(configs: Mapping[str, ConfigT]) -> list[tuple[ConfigT, list[str]]]:
    """Settings by broker name, as different settings with the brokers that have them."""
    found: list[tuple[ConfigT, list[str]]] = []
    for name, config in sorted(configs.items()):
        same = next((brokers for known, brokers in found if known == config), None)
        if same is None:
            found.append((config, [name]))
        else:
            same.append(name)
    return found


# -- both ------------------------------------------------------------------------------------------


class ImportPlaces(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be created, and where. What exists on a broker stays as it is there."""

    clusters: list[str] = []
    brokers: list[str] = []
    """If neither is given, on the brokers that the file names and that exist here, or else on all masters."""


def file_endpoints(
    noun: str,
    entry: type[msgspec.Struct],
    body: type[ImportPlaces],
    export: Callable[[Call[Any, Any], Request], Awaitable[Response]],
    plan: Callable[[Call[Any, Any]], Awaitable[Plan]],
) -> tuple[Endpoint, ...]:
    """The operations of one kind of settings."""
    return (
        Raw(
            method="GET",
            path=f"/exports/{noun}s",
            summary=f"The settings of all user {noun}s as a JSON file",
            role=Role.READER,
            respond=export,
            returns=list[entry],  # type: ignore[valid-type]
        ),
        Change(
            path=f"/imports/{noun}s",
            summary=f"Create {noun}s from a JSON file",
            body=body,
            planner=plan,
            # The effects have the names; a file may have thousands.
            is_secret=True,
        ),
    )


# -- import ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewSettings(Generic[ConfigT]):
    """An entry of the file."""

    name: str
    config: ConfigT
    brokers: list[str]


@dataclass(frozen=True, slots=True)
class SettingsImport(Generic[ConfigT]):
    """How one kind of settings is created."""

    noun: str
    problem: Callable[[str], str | None]
    """What is wrong with a name."""
    create_all: Callable[[str, list[ConfigT]], Awaitable[object]]
    """By one request to the broker at this address."""
    create_one: Callable[[str, ConfigT], Awaitable[object]]
    """For brokers that do not know that request."""

    async def plan(
        self,
        call: Call[Any, Any],
        entries: Sequence[NewSettings[ConfigT]],
        known: Mapping[str, Mapping[str, object]],
    ) -> Plan:
        """Create what is not there; `known` has the brokers of each name. The body of the call names clusters
        and brokers; if neither, the brokers that the file names and that exist here, or else all masters."""
        field, body = f"{self.noun}s", call.body
        for number, entry in enumerate(entries):
            if problem := self.problem(entry.name):
                raise bad_input(f"{field}[{number}]", problem)
        masters = await chosen_masters(call.admin, body.clusters, body.brokers)
        work: dict[BrokerAddress, list[NewSettings[ConfigT]]] = {}
        existing: set[str] = set()
        for entry in entries:
            named = [master for master in masters if master.broker_name in entry.brokers]
            for master in masters if body.clusters or body.brokers else named or masters:
                if master.broker_name in known.get(entry.name, {}):
                    existing.add(entry.name)
                else:
                    work.setdefault(master, []).append(entry)
        if not work:
            raise bad_input(field, "all of them exist already on these brokers")
        effects = [
            f"Creates {counted(len(new), self.noun)} on {master.broker_name}: {_names(new)}"
            for master, new in work.items()
        ]
        if existing:
            effects.append(f"Skips {counted(len(existing), self.noun)} on brokers that have them already")
        return Plan(effects=effects, commands=[], run=lambda: self._run(work))

    async def _run(self, work: Mapping[BrokerAddress, list[NewSettings[ConfigT]]]) -> Done:
        outcomes = [await self._create(master, new) for master, new in work.items()]
        return Done(outcomes=named_outcomes(outcomes, work))

    async def _create(self, master: BrokerAddress, new: list[NewSettings[ConfigT]]) -> Outcome:
        done = 0
        try:
            for first in range(0, len(new), _BATCH):
                batch = [entry.config for entry in new[first : first + _BATCH]]
                try:
                    await self.create_all(master.address, batch)
                except ResponseError as error:
                    if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        raise
                    for config in batch:
                        await self.create_one(master.address, config)
                done += len(batch)
        except KourouError as error:
            return Outcome(master.address, f"after {done:,} of {counted(len(new), self.noun)}: {error}")
        return Outcome(master.address)


def _names(entries: Sequence[NewSettings[Any]]) -> str:
    names = ", ".join(entry.name for entry in entries[:_SHOWN_NAMES])
    more = len(entries) - _SHOWN_NAMES
    return names + (f" and {more:,} more" if more > 0 else "")
