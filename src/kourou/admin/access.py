"""Access control of a cluster: users and permissions, as RocketMQ 5 keeps them. Reading only.

Each broker has its own; what brokers do not share is listed with the brokers that have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from kourou.admin.session import Admin, BrokerAddress
from kourou.errors import KourouError, ProtocolError, ResponseError
from kourou.protocol.codes import RequestCode, ResponseCode

T = TypeVar("T")

_NO_SUCH_REQUEST: Final = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


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
class ClusterAccess:
    """All users and rules of a cluster."""

    is_supported: bool
    """Whether a broker has access control of RocketMQ 5."""
    users: list[AccessUser] = field(default_factory=list)
    rules: list[AccessRule] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class _User(msgspec.Struct, rename="camel"):
    username: str = ""
    user_type: str | None = None
    user_status: str | None = None


class _Entry(msgspec.Struct, rename="camel"):
    resource: str = ""
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class _Policy(msgspec.Struct, rename="camel"):
    policy_type: str | None = None
    entries: list[_Entry] | None = None


class _Acl(msgspec.Struct, rename="camel"):
    subject: str = ""
    policies: list[_Policy] | None = None


async def cluster_access(admin: Admin) -> ClusterAccess:
    """The users and rules of all masters."""
    masters = await admin.masters()
    answers = await asyncio.gather(*(_read(admin, master) for master in masters))
    found = [(name, *answer) for name, answer in answers if not isinstance(answer, KourouError)]
    problems = [f"broker {name}: {answer}" for name, answer in answers if _is_problem(answer)]
    return ClusterAccess(
        bool(found),
        list(_users((name, users) for name, users, _ in found)),
        list(_rules((name, acls) for name, _, acls in found)),
        problems,
    )


def _is_problem(answer: object) -> bool:
    """Whether an answer is an error other than that the broker has no access control."""
    if isinstance(answer, ResponseError):
        return answer.code != _NO_SUCH_REQUEST
    return isinstance(answer, KourouError)


async def _read(
    admin: Admin, master: BrokerAddress
) -> tuple[str, tuple[list[_User], list[_Acl]] | KourouError]:
    try:
        users = await admin.call(master.address, RequestCode.AUTH_LIST_USER)
        acls = await admin.call(master.address, RequestCode.AUTH_LIST_ACL)
        return master.broker_name, (_decode(users.body, list[_User]), _decode(acls.body, list[_Acl]))
    except KourouError as error:
        return master.broker_name, error


def _decode(body: bytes, kind: type[list[T]]) -> list[T]:
    try:
        return msgspec.json.decode(body, type=kind) if body else []
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"list of users or permissions: {error}") from None


def _users(found: Iterable[tuple[str, Sequence[_User]]]) -> Iterable[AccessUser]:
    brokers: dict[tuple[str, str, str], list[str]] = {}
    for name, users in found:
        for user in users:
            key = user.username, user.user_type or "Normal", user.user_status or "enable"
            brokers.setdefault(key, []).append(name)
    return (AccessUser(*key, names) for key, names in sorted(brokers.items()))


def _rules(found: Iterable[tuple[str, Sequence[_Acl]]]) -> Iterable[AccessRule]:
    brokers: dict[tuple[str, str, str, tuple[str, ...], tuple[str, ...], str], list[str]] = {}
    for name, acls in found:
        for acl in acls:
            for policy in acl.policies or ():
                for entry in policy.entries or ():
                    key = (
                        acl.subject,
                        policy.policy_type or "Custom",
                        entry.resource,
                        tuple(entry.actions or ()),
                        tuple(entry.source_ips or ()),
                        entry.decision or "",
                    )
                    brokers.setdefault(key, []).append(name)
    for (subject, policy_type, resource, actions, ips, decision), names in sorted(brokers.items()):
        yield AccessRule(subject, policy_type, resource, list(actions), list(ips), decision, names)
