"""Changes of users of RocketMQ 5's access control. A password is never part of a preview or an answer."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from kourou.admin.access import AuthTables
from kourou.admin.session import BrokerAddress
from kourou.admin.users import create_user, delete_user, get_user, in_turn, update_user
from kourou.console.api.access_places import AccessPlaces, access_commands, access_places, where
from kourou.console.api.places import named_outcomes
from kourou.console.api_errors import ApiError, bad_input, not_found
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoQuery, Plan
from kourou.protocol.bodies import UserInfo

NO_AUTH: Final = "no broker here has access control of RocketMQ 5"
_PASSWORD: Final = "PASSWORD"
"""In command lines, instead of a password."""

UserType = Literal["Normal", "Super"]
UserStatus = Literal["enable", "disable"]


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A user to create on the brokers with these names, on all if there are none."""

    username: str
    password: str
    user_type: UserType = "Normal"
    brokers: list[str] = []


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be changed of a user; what is not given stays."""

    password: str | None = None
    user_type: UserType | None = None
    user_status: UserStatus | None = None
    brokers: list[str] = []


class AccessScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The brokers with these names; all if there are none."""

    brokers: list[str] = []


async def _places(call: Call[Any, Any]) -> AccessPlaces[AuthTables]:
    return await access_places(call.admin, AuthTables, call.body.brokers, NO_AUTH)


def _users(tables: AuthTables) -> dict[str, UserInfo]:
    return {user.username or "": user for user in tables.users}


# -- create ------------------------------------------------------------------------------------------


async def _create(call: Call[NoQuery, NewUser]) -> Plan:
    body, places = call.body, await _places(call)
    if not body.username.strip():
        raise bad_input("username", "it is empty")
    if not body.password:
        raise bad_input("password", "it is empty")
    brokers = [broker for broker, tables in places if body.username not in _users(tables)]
    having = [broker for broker in places.found if broker not in brokers]
    if not brokers:
        raise ApiError(
            HTTPStatus.CONFLICT, "user_exists", f"user {body.username} already exists", "change it instead"
        )
    warnings = [f"{where(having)} has a user of this name already, which stays as it is"] if having else []
    if body.user_type == "Super":
        warnings.append("A Super user may do everything, and change all users")
    words = ["-u", body.username, "-p", _PASSWORD, "-t", body.user_type]

    async def create(address: str) -> None:
        is_master = any(broker.is_master for broker in brokers if broker.address == address)
        # A slave that follows its master has the user by now.
        if is_master or await get_user(call.admin, address, body.username) is None:
            await create_user(call.admin, [address], body.username, body.password, user_type=body.user_type)

    async def run() -> Done:
        outcomes = await in_turn([broker.address for broker in brokers], create)
        return Done(outcomes=named_outcomes(outcomes, brokers))

    return Plan(
        effects=[f"Creates the {body.user_type} user {body.username} on {where(brokers)}"],
        warnings=[*places.warnings, *warnings],
        commands=await access_commands(call, brokers, "createUser", *words),
        run=run,
        is_secret=True,
    )


# -- change ------------------------------------------------------------------------------------------


async def _change(call: Call[NoQuery, UserChange]) -> Plan:
    name, body, places = call.path["name"], call.body, await _places(call)
    effects, brokers, without_super = [], [], []
    for broker, tables in places:
        user = _users(tables).get(name)
        if user is None:
            continue
        changes = _changes(user, body)
        if changes:
            brokers.append(broker)
            effects.append(f"{where([broker])}: {'; '.join(changes)}")
        if _is_last_super(tables, name) and (body.user_type == "Normal" or body.user_status == "disable"):
            without_super.append(broker)
    if not any(name in _users(tables) for _, tables in places):
        raise not_found(f"there is no user {name}")
    if not brokers:
        raise bad_input("body", f"user {name} is like this already")
    words = ["-p", _PASSWORD] if body.password else []
    words += ["-t", body.user_type] if body.user_type else []
    words += ["-s", body.user_status] if body.user_status else []

    async def run() -> Done:
        outcomes = await update_user(
            call.admin,
            [broker.address for broker in brokers],
            name,
            password=body.password or None,
            user_type=body.user_type,
            user_status=body.user_status,
        )
        return Done(outcomes=named_outcomes(outcomes, brokers))

    return Plan(
        effects=[f"Changes user {name}", *effects],
        warnings=[*places.warnings, *_warnings(call, name, without_super)],
        # Apache's tool takes one of the options at a time.
        commands=[
            line
            for first in range(0, len(words), 2)
            for line in await access_commands(
                call, brokers, "updateUser", "-u", name, *words[first : first + 2]
            )
        ],
        run=run,
        is_secret=body.password is not None,
    )


def _changes(user: UserInfo, body: UserChange) -> list[str]:
    found = ["new password"] if body.password else []
    for word, old, new in (
        ("type", user.user_type or "Normal", body.user_type),
        ("status", user.user_status or "enable", body.user_status),
    ):
        if new is not None and new.lower() != old.lower():
            found.append(f"{word} {old} → {new}")
    return found


# -- delete ------------------------------------------------------------------------------------------


async def _delete(call: Call[NoQuery, AccessScope]) -> Plan:
    name, places = call.path["name"], await _places(call)
    brokers = [broker for broker, tables in places if name in _users(tables)]
    if not brokers:
        raise not_found(f"there is no user {name}")
    without_super = [broker for broker, tables in places if _is_last_super(tables, name)]

    async def run() -> Done:
        outcomes = await delete_user(call.admin, [broker.address for broker in brokers], name)
        return Done(outcomes=named_outcomes(outcomes, brokers))

    return Plan(
        effects=[f"Deletes user {name} and all its permissions from {where(brokers)}"],
        warnings=[
            *places.warnings,
            f"Clients with the keys of {name} are refused from now on",
            *_warnings(call, name, without_super),
        ],
        commands=await access_commands(call, brokers, "deleteUser", "-u", name),
        run=run,
    )


def _is_last_super(tables: AuthTables, name: str) -> bool:
    supers = {
        user.username
        for user in tables.users
        if (user.user_type or "").lower() == "super" and (user.user_status or "enable").lower() == "enable"
    }
    return supers == {name}


def _warnings(call: Call[Any, Any], name: str, without_super: Sequence[BrokerAddress]) -> list[str]:
    found = []
    if name == call.visitor.user and call.context.settings.accounts:
        found.append("You are logged in with this account")
    if without_super:
        found.append(
            f"{where(without_super)} has no other enabled Super user: access cannot be managed there any more"
        )
    return found


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Change(
        path="/access/users",
        summary="Create a user of RocketMQ 5's access control",
        body=NewUser,
        planner=_create,
        is_secret=True,
    ),
    Change(
        method="PUT",
        path="/access/users/{name:path}",
        summary="Change the password, type or status of a user",
        body=UserChange,
        planner=_change,
        is_secret=True,
    ),
    Change(
        method="DELETE",
        path="/access/users/{name:path}",
        summary="Delete a user with its permissions",
        body=AccessScope,
        planner=_delete,
    ),
)
