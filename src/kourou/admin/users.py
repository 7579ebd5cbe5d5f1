"""Users of RocketMQ 5's access control: created, changed, deleted, read and copied.

A change is made at one broker after the other, in the given order: the masters first, so that a slave that
follows its master has nothing to change any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kourou.admin.session import Admin
from kourou.admin.targets import Outcome
from kourou.errors import ConfigError, KourouError
from kourou.protocol.bodies import UserInfo, decode_body, encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.acl import (
    CreateUserRequestHeader,
    DeleteUserRequestHeader,
    GetUserRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)


async def create_user(
    admin: Admin, addresses: Sequence[str], name: str, password: str, *, user_type: str | None = None
) -> list[Outcome]:
    """Create a user, a Normal one by default, on each broker."""
    info = UserInfo(username=name, password=password, user_type=user_type)
    return await in_turn(addresses, lambda address: _create(admin, address, name, info))


async def update_user(
    admin: Admin,
    addresses: Sequence[str],
    name: str,
    *,
    password: str | None = None,
    user_type: str | None = None,
    user_status: str | None = None,
) -> list[Outcome]:
    """Change what is given of a user on each broker."""
    info = UserInfo(username=name, password=password, user_type=user_type, user_status=user_status)
    return await in_turn(addresses, lambda address: _update(admin, address, name, info))


async def delete_user(admin: Admin, addresses: Sequence[str], name: str) -> list[Outcome]:
    """Delete a user and all policies of that user on each broker."""
    header = DeleteUserRequestHeader(username=name)
    return await in_turn(addresses, lambda address: admin.call(address, RequestCode.AUTH_DELETE_USER, header))


async def get_user(admin: Admin, address: str, name: str) -> UserInfo | None:
    """A user of a broker; None if there is none. Only Super users get the password."""
    header = GetUserRequestHeader(username=name)
    answer = await admin.call(address, RequestCode.AUTH_GET_USER, header)
    return decode_body(answer.body, UserInfo) if answer.body else None


async def list_users(admin: Admin, address: str, text: str | None = None) -> list[UserInfo]:
    """The users of a broker whose names contain `text`. Only Super users get the passwords."""
    answer = await admin.call(address, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(filter=text))
    return decode_body(answer.body, list[UserInfo]) if answer.body else []


async def copy_users(
    admin: Admin, source: str, target: str, names: Sequence[str] = ()
) -> list[tuple[str, Outcome]]:
    """Copy users, all of them by default, with their passwords: each, and what became of it."""
    if names:
        found = [await get_user(admin, source, name) for name in names]
        users = [user for user in found if user is not None]
    else:
        users = await list_users(admin, source)
    copied: list[tuple[str, Outcome]] = []
    for user in users:
        name = user.username or ""
        outcome = await outcome_of(target, _copy(admin, source, target, user))
        copied.append((name, outcome))
    return copied


async def _copy(admin: Admin, source: str, target: str, user: UserInfo) -> None:
    name = user.username or ""
    if not user.password:
        raise ConfigError(f"user {name}: the broker at {source} returns passwords to Super users only")
    if await get_user(admin, target, name) is None:
        await _create(admin, target, name, user)
    else:
        await _update(admin, target, name, user)


async def _create(admin: Admin, address: str, name: str, info: UserInfo) -> None:
    header = CreateUserRequestHeader(username=name)
    await admin.call(address, RequestCode.AUTH_CREATE_USER, header, encode_body(info))


async def _update(admin: Admin, address: str, name: str, info: UserInfo) -> None:
    header = UpdateUserRequestHeader(username=name)
    await admin.call(address, RequestCode.AUTH_UPDATE_USER, header, encode_body(info))


# -- several brokers -----------------------------------------------------------------------------------


async def in_turn(addresses: Sequence[str], action: Callable[[str], Awaitable[object]]) -> list[Outcome]:
    """Run an action on one server after the other. If it fails on all, the first error is raised."""
    outcomes: list[Outcome] = []
    first: KourouError | None = None
    for address in addresses:
        try:
            await action(address)
        except KourouError as error:
            first = first or error
            outcomes.append(Outcome(address, str(error)))
        else:
            outcomes.append(Outcome(address))
    if first is not None and not any(outcome.is_done for outcome in outcomes):
        raise first
    return outcomes


async def outcome_of(address: str, action: Awaitable[object]) -> Outcome:
    """What became of an action on one server."""
    try:
        await action
    except KourouError as error:
        return Outcome(address, str(error))
    return Outcome(address)
