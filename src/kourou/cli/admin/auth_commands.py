"""Commands about users and policies of RocketMQ 5's access control.

Changes go to masters and slaves, as Apache's do. Passwords are printed where Apache prints them, in the
tables of getUser and listUser, and nowhere else: `--json` has stars.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kourou.admin.acls import (
    copy_acls,
    create_acl,
    delete_acl,
    entries_of,
    get_acl,
    list_acls,
    update_acl,
)
from kourou.admin.session import Admin
from kourou.admin.targets import Outcome
from kourou.admin.users import copy_users, create_user, delete_user, get_user, list_users, update_user
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import Option, ParsedArgs, one_of, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.target_options import (
    BROKER_OR_CLUSTER,
    chosen_brokers,
    chosen_masters,
    show_outcomes,
)
from kourou.protocol.bodies import AclInfo, UserInfo

_USER_LINE: Final = "{:<16}  {:<22}  {:<22}  {:<22}"
_USER_HEADS: Final = ("#UserName", "#Password", "#UserType", "#UserStatus")
_ACL_LINE: Final = "{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}"
_ACL_HEADS: Final = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
_HIDDEN: Final = "******"

# As Apache's tool sends and prints them.
_CHANGED_AT: Final[tuple[Option, ...]] = one_of(
    value("b", "brokerAddr", "broker, as host:port or by its name"),
    value("c", "clusterName", "all masters and slaves of this cluster"),
)
_USER: Final = required("u", "username", "name of the user")
_SUBJECT: Final = required("s", "subject", "whose policies, User:name")


@dataclass(frozen=True, slots=True)
class Copied:
    """A user or subject, and what became of its copy."""

    name: str
    source: str
    target: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class UsersOf:
    """Users of a broker."""

    address: str
    users: list[UserInfo]


@dataclass(frozen=True, slots=True)
class AclsOf:
    """Policies of a broker."""

    address: str
    acls: list[AclInfo]


def _words(args: ParsedArgs, name: str) -> list[str]:
    """A list that is given with commas."""
    return [word.strip() for word in args.text(name).split(",") if word.strip()]


def _changing(
    name: str,
    done: str,
    change: Callable[[Admin, Sequence[str], ParsedArgs], Awaitable[list[Outcome]]],
    *options: Option,
    about: str,
    example: str,
    question: Callable[[ParsedArgs], str] | None = None,
) -> AdminCommand:
    """A command that changes something at masters and slaves; `done` is what Apache's says of each."""

    async def ask(call: Call) -> list[Outcome]:
        return await change(call.admin, await chosen_brokers(call), call.args)

    def show(outcomes: list[Outcome], screen: Screen) -> None:
        show_outcomes(outcomes, screen, lambda address: f"{done} to {address} success.")

    return AdminCommand(
        name=name,
        about=about,
        example=f"{name} -n 127.0.0.1:9876 -c DefaultCluster {example}",
        options=(*_CHANGED_AT, *options),
        ask=ask,
        show=show,
        question=question,
    )


# -- users -------------------------------------------------------------------------------------------


async def _get_user(call: Call) -> UsersOf | None:
    async def ask(address: str) -> list[UserInfo]:
        user = await get_user(call.admin, address, call.args.text("username"))
        return [] if user is None else [user]

    return await _first_users(call, ask)


async def _list_users(call: Call) -> UsersOf | None:
    return await _first_users(call, lambda address: list_users(call.admin, address, call.args.get("filter")))


async def _first_users(call: Call, ask: Callable[[str], Awaitable[list[UserInfo]]]) -> UsersOf | None:
    """The users of the broker, or of the first master that has any."""
    for address in await chosen_masters(call):
        users = await ask(address)
        if users:
            hides = call.args.flag("json")
            return UsersOf(address, [_hidden(user) for user in users] if hides else users)
    return None


def _hidden(user: UserInfo) -> UserInfo:
    return msgspec.structs.replace(user, password=_HIDDEN if user.password else None)


def _show_user(found: UsersOf | None, screen: Screen) -> None:
    if found is not None:
        rows = (
            (user.username, _text(user.password), _text(user.user_type), _text(user.user_status))
            for user in found.users
        )
        screen.table(_USER_LINE, _USER_HEADS, rows)


def _show_users(found: UsersOf | None, screen: Screen) -> None:
    _show_user(found, screen)
    if found is not None and "clusterName" in screen.args:
        screen.line(f"get user from {found.address} success.")


# -- policies ----------------------------------------------------------------------------------------


def _entries(args: ParsedArgs) -> AclInfo:
    return entries_of(
        _words(args, "resources"), _words(args, "actions"), _words(args, "sourceIp"), args.text("decision")
    )


async def _get_acl(call: Call) -> list[AclsOf]:
    found = []
    for address in await chosen_masters(call):
        acl = await get_acl(call.admin, address, call.args.text("subject"))
        if acl is not None:
            found.append(AclsOf(address, [acl]))
    return found


async def _list_acls(call: Call) -> list[AclsOf]:
    args = call.args
    found = []
    for address in await chosen_masters(call):
        acls = await list_acls(call.admin, address, args.get("subject"), args.get("resource"))
        if acls:
            found.append(AclsOf(address, acls))
    return found


def _show_acls(found: list[AclsOf], screen: Screen) -> None:
    for of_broker in found:
        screen.table(_ACL_LINE, _ACL_HEADS, (row for acl in of_broker.acls for row in _rows(acl)))


def _rows(acl: AclInfo) -> Iterable[Sequence[str]]:
    for policy in acl.policies or ():
        for entry in policy.entries or ():
            yield (
                _text(acl.subject),
                _text(policy.policy_type),
                _text(entry.resource),
                _list(entry.actions),
                _list(entry.source_ips),
                _text(entry.decision),
            )


def _text(text: str | None) -> str:
    return "null" if text is None else text


def _list(words: list[str] | None) -> str:
    return "null" if words is None else f"[{', '.join(words)}]"


# -- copies ------------------------------------------------------------------------------------------


async def _copy_users(call: Call) -> list[Copied]:
    return await _copies(call, copy_users, _words(call.args, "usernames"))


async def _copy_acls(call: Call) -> list[Copied]:
    return await _copies(call, copy_acls, _words(call.args, "subjects"))


async def _copies(
    call: Call,
    copy: Callable[[Admin, str, str, Sequence[str]], Awaitable[list[tuple[str, Outcome]]]],
    names: list[str],
) -> list[Copied]:
    source, target = call.args.text("fromBroker"), call.args.text("toBroker")
    copied = await copy(
        call.admin,
        await call.admin.broker_address(source),
        await call.admin.broker_address(target),
        names,
    )
    return [Copied(name, source, target, outcome.problem) for name, outcome in copied]


def _show_copies(what: str) -> Callable[[list[Copied], Screen], None]:
    def show(copies: list[Copied], screen: Screen) -> None:
        for copy in copies:
            if copy.problem:
                screen.trouble(f"{what} of {copy.name} was not copied: {copy.problem}")
            else:
                screen.line(f"copy {what} of {copy.name} from {copy.source} to {copy.target} success.")

    return show


_COPIED: Final = (
    required("f", "fromBroker", "the broker to copy from"),
    required("t", "toBroker", "the broker to copy to"),
)
_ENTRY: Final = (
    _SUBJECT,
    required("r", "resources", "Topic:name, Group:name, Cluster:name, with * at the end, or *; with commas"),
    required("a", "actions", "All, Pub, Sub, Create, Update, Delete, Get, List; with commas"),
    required("d", "decision", "Allow or Deny"),
    value("i", "sourceIp", "only from these addresses or networks (10.0.0.0/8), with commas"),
)

AUTH_COMMANDS: Final = (
    _changing(
        "createUser",
        "create user",
        lambda admin, brokers, args: create_user(
            admin, brokers, args.text("username"), args.text("password"), user_type=args.get("userType")
        ),
        _USER,
        required("p", "password", "the password, which is the secret key of clients"),
        value("t", "userType", "Super or Normal (default)"),
        about="Create a user.",
        example="-u alice -p secret -t Normal",
    ),
    _changing(
        "updateUser",
        "update user",
        lambda admin, brokers, args: update_user(
            admin,
            brokers,
            args.text("username"),
            password=args.get("password"),
            user_type=args.get("userType"),
            user_status=args.get("userStatus"),
        ),
        _USER,
        *one_of(
            value("p", "password", "the new password"),
            value("t", "userType", "Super or Normal"),
            value("s", "userStatus", "enable or disable"),
        ),
        about="Change a user's password, type or status.",
        example="-u alice -s disable",
    ),
    _changing(
        "deleteUser",
        "delete user",
        lambda admin, brokers, args: delete_user(admin, brokers, args.text("username")),
        _USER,
        about="Delete a user with all policies.",
        example="-u alice",
        question=lambda args: f"Delete user {args.text('username')} and all policies of that user?",
    ),
    AdminCommand(
        name="getUser",
        about="Show a user, with the password if you are a Super user.",
        example="getUser -n 127.0.0.1:9876 -c DefaultCluster -u alice",
        options=(*BROKER_OR_CLUSTER, value("u", "username", "name of the user")),
        ask=_get_user,
        show=_show_user,
    ),
    AdminCommand(
        name="listUser",
        about="List all users, with the passwords if you are a Super user.",
        example="listUser -n 127.0.0.1:9876 -c DefaultCluster",
        options=(*BROKER_OR_CLUSTER, value("f", "filter", "only users whose names contain this text")),
        ask=_list_users,
        show=_show_users,
    ),
    AdminCommand(
        name="copyUser",
        about="Copy users from one broker to another, with their passwords.",
        example="copyUser -n 127.0.0.1:9876 -f 127.0.0.1:10911 -t 127.0.0.1:10921",
        options=(*_COPIED, value("u", "usernames", "only these users, with commas")),
        ask=_copy_users,
        show=_show_copies("user"),
    ),
    _changing(
        "createAcl",
        "create acl",
        lambda admin, brokers, args: create_acl(admin, brokers, args.text("subject"), _entries(args)),
        *_ENTRY,
        about="Grant permissions to a user.",
        example="-s User:alice -r Topic:Orders -a Pub -d Allow",
    ),
    _changing(
        "updateAcl",
        "update acl",
        lambda admin, brokers, args: update_acl(admin, brokers, args.text("subject"), _entries(args)),
        *_ENTRY,
        about="Change a user's permissions.",
        example="-s User:alice -r Topic:Orders -a Pub,Sub -d Allow",
    ),
    _changing(
        "deleteAcl",
        "delete acl",
        lambda admin, brokers, args: delete_acl(
            admin,
            brokers,
            args.text("subject"),
            resource=args.get("resources"),
            policy_type=args.get("policyType"),
        ),
        _SUBJECT,
        value("r", "resources", "the resource; all policies of the user if not given"),
        value("t", "policyType", "Custom (default) or Default"),
        about="Revoke a user's permissions, all of them or those for one resource.",
        example="-s User:alice -r Topic:Orders",
    ),
    AdminCommand(
        name="getAcl",
        about="Show a user's permissions.",
        example="getAcl -n 127.0.0.1:9876 -c DefaultCluster -s User:alice",
        options=(*BROKER_OR_CLUSTER, value("s", "subject", "whose policies, User:name")),
        ask=_get_acl,
        show=_show_acls,
    ),
    AdminCommand(
        name="listAcl",
        about="List the permissions of all users.",
        example="listAcl -n 127.0.0.1:9876 -c DefaultCluster",
        options=(
            *BROKER_OR_CLUSTER,
            value("s", "subject", "only subjects that contain this text"),
            value("r", "resource", "only resources that contain this text"),
        ),
        ask=_list_acls,
        show=_show_acls,
    ),
    AdminCommand(
        name="copyAcl",
        about="Copy permissions from one broker to another.",
        example="copyAcl -n 127.0.0.1:9876 -f 127.0.0.1:10911 -t 127.0.0.1:10921",
        options=(*_COPIED, value("s", "subjects", "only these subjects, User:name, with commas")),
        ask=_copy_acls,
        show=_show_copies("acl"),
    ),
)
