"""Access control of a cluster: users and policies of RocketMQ 5, accounts of RocketMQ 4. Reading only, and
without secrets.

Each broker has its own; what brokers do not share is listed with the brokers that have it. Not here: changes
(users.py, acls.py, plain_acl.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec

from kourou.admin.acls import list_acls
from kourou.admin.session import Admin, BrokerAddress
from kourou.admin.users import list_users
from kourou.errors import CallTimeoutError, KourouError, ProtocolError, ResponseError
from kourou.protocol.bodies import AclInfo, PlainAclConfig, UserInfo, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode

_OFF: Final = ("MetadataProvider is not configured", "has no accounts of RocketMQ 4")
"""In the remarks of brokers whose access control is off: RocketMQ 5's, and Kourou's."""
_PLAIN_TIMEOUT_MS: Final = 2_000
"""A broker of RocketMQ 4 whose access control is off answers nothing at all."""

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class AccessUser:
    """One user; the password is left out."""

    username: str
    user_type: str
    """`Super` or `Normal`."""
    user_status: str
    """`enable` or `disable`."""
    brokers: list[str]
    """Names of the brokers that have it like this."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What one subject may do with one resource."""

    subject: str
    policy_type: str
    resource: str
    actions: list[str]
    source_ips: list[str]
    decision: str
    brokers: list[str]


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """One account of RocketMQ 4; the secret key is left out."""

    access_key: str
    white_remote_address: str
    """An address pattern from which it needs no signature; empty: none."""
    is_admin: bool
    default_topic_perm: str
    default_group_perm: str
    topic_perms: list[str]
    """`name=PERM`."""
    group_perms: list[str]
    brokers: list[str]


@dataclass(frozen=True, slots=True)
class WhiteList:
    """Address patterns from which no request of RocketMQ 4 needs an account."""

    addresses: list[str]
    brokers: list[str]


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """All users, rules and accounts of a cluster."""

    is_supported: bool
    """Whether a broker has access control of RocketMQ 5."""
    is_plain: bool = False
    """Whether one has that of RocketMQ 4."""
    brokers: list[str] = field(default_factory=list)
    """Masters with that of RocketMQ 5."""
    plain_brokers: list[str] = field(default_factory=list)
    """Masters with that of RocketMQ 4."""
    users: list[AccessUser] = field(default_factory=list)
    rules: list[AccessRule] = field(default_factory=list)
    accounts: list[PlainAccount] = field(default_factory=list)
    white_lists: list[WhiteList] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AuthTables:
    """What a broker with RocketMQ 5's access control has."""

    users: list[UserInfo]
    acls: list[AclInfo]


class PlainListing(msgspec.Struct, rename="camel"):
    """What a broker with RocketMQ 4's access control has."""

    global_white_addrs: list[str] | None = None
    plain_access_configs: list[PlainListed] | None = None


class PlainListed(msgspec.Struct, rename="camel"):
    """One account there: the field with the secret key is not read."""

    access_key: str = ""
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


Found: TypeAlias = AuthTables | PlainListing | None
"""Of one broker; None: it has no access control."""


async def cluster_access(admin: Admin) -> ClusterAccess:
    """What all masters have."""
    masters = await admin.masters()
    found = await asyncio.gather(*(_answer(admin, master) for master in masters))
    auth = [(name, one) for name, one in found if isinstance(one, AuthTables)]
    plain = [(name, one) for name, one in found if isinstance(one, PlainListing)]
    return ClusterAccess(
        is_supported=bool(auth),
        is_plain=bool(plain),
        brokers=[name for name, _ in auth],
        plain_brokers=[name for name, _ in plain],
        users=[AccessUser(*key, brokers) for key, brokers in _grouped(map(_users, auth))],
        rules=list(_rules(auth)),
        accounts=list(_accounts(plain)),
        white_lists=[
            WhiteList(list(addresses), brokers)
            for addresses, brokers in _grouped((name, [_white_list(one)]) for name, one in plain)
            if addresses
        ],
        problems=[f"broker {name}: {one}" for name, one in found if isinstance(one, KourouError)],
    )


async def broker_access(admin: Admin, address: str) -> Found:
    """What one broker has. ResponseError if the session's account may not read it."""
    try:
        return AuthTables(await list_users(admin, address), await _acls(admin, address))
    except ResponseError as error:
        if not _is_off(error):
            raise
    return await plain_listing(admin, address)


async def plain_secret(admin: Admin, address: str, access_key: str) -> str | None:
    """The secret key of an account of RocketMQ 4: a broker wants it with each change, also of other settings.
    None if it is not shown to the session's account. It has secrets and must not be shown."""
    answer = await admin.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    config = decode_body(answer.body, PlainAclConfig)
    found = [one.secret_key for one in config.plain_access_configs if one.access_key == access_key]
    return found[0] if found and found[0] and found[0].strip("*") else None


async def _answer(admin: Admin, master: BrokerAddress) -> tuple[str, Found | KourouError]:
    try:
        return master.broker_name, await broker_access(admin, master.address)
    except KourouError as error:
        return master.broker_name, error


async def _acls(admin: Admin, address: str) -> list[AclInfo]:
    try:
        return await list_acls(admin, address)
    except ResponseError as error:
        if _is_off(error):  # users only: authentication without authorization
            return []
        raise


async def plain_listing(admin: Admin, address: str) -> PlainListing | None:
    """The accounts of RocketMQ 4 of one broker; None if it has no such access control."""
    code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
    try:
        answer = await admin.call(address, code, timeout_ms=_PLAIN_TIMEOUT_MS)
        return msgspec.json.decode(answer.body, type=PlainListing) if answer.body else None
    except CallTimeoutError:
        return None
    except ResponseError as error:
        if _is_off(error):
            return None
        raise
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"list of accounts: {error}") from None


def _is_off(error: ResponseError) -> bool:
    """Whether a broker has no access control of this version."""
    return error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED or any(
        words in error.remark for words in _OFF
    )


# -- what brokers share --------------------------------------------------------------------------------


def _grouped(found: Iterable[tuple[str, Iterable[KeyT]]]) -> list[tuple[KeyT, list[str]]]:
    """Each key, with the brokers that have it; sorted."""
    brokers: dict[KeyT, list[str]] = {}
    for name, keys in found:
        for key in keys:
            brokers.setdefault(key, []).append(name)
    return sorted(brokers.items(), key=lambda item: repr(item[0]))


def _users(found: tuple[str, AuthTables]) -> tuple[str, Iterable[tuple[str, str, str]]]:
    name, tables = found
    return name, (
        (user.username or "", user.user_type or "Normal", user.user_status or "enable")
        for user in tables.users
    )


def _rules(auth: Sequence[tuple[str, AuthTables]]) -> Iterable[AccessRule]:
    grouped = _grouped((name, _rule_keys(tables.acls)) for name, tables in auth)
    for (subject, policy_type, resource, actions, sources, decision), brokers in grouped:
        yield AccessRule(subject, policy_type, resource, list(actions), list(sources), decision, brokers)


def _rule_keys(
    acls: Sequence[AclInfo],
) -> Iterable[tuple[str, str, str, tuple[str, ...], tuple[str, ...], str]]:
    return (
        (
            acl.subject or "",
            policy.policy_type or "Custom",
            entry.resource or "",
            tuple(entry.actions or ()),
            tuple(entry.source_ips or ()),
            entry.decision or "",
        )
        for acl in acls
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    )


def _white_list(listing: PlainListing) -> tuple[str, ...]:
    return tuple(listing.global_white_addrs or ())


def _accounts(plain: Sequence[tuple[str, PlainListing]]) -> Iterable[PlainAccount]:
    grouped = _grouped((name, map(_account_key, one.plain_access_configs or ())) for name, one in plain)
    for (key, white, is_admin, topic, group, topics, groups), brokers in grouped:
        yield PlainAccount(key, white, is_admin, topic, group, list(topics), list(groups), brokers)


def _account_key(
    one: PlainListed,
) -> tuple[str, str, bool, str, str, tuple[str, ...], tuple[str, ...]]:
    return (
        one.access_key,
        one.white_remote_address or "",
        one.admin,
        one.default_topic_perm or "",
        one.default_group_perm or "",
        tuple(one.topic_perms or ()),
        tuple(one.group_perms or ()),
    )
