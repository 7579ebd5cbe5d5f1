"""The accounts of the tests of access control: the same in RocketMQ 4's file and RocketMQ 5's users and ACLs.

`IDENTITIES` are what a client may present: these accounts, and wrong, unknown and missing keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Identity:
    """What a client signs with; without access key it does not sign."""

    name: str
    access_key: str = ""
    secret_key: str = ""


@dataclass(frozen=True, slots=True)
class Permission:
    """What an account may with one topic or group; the words are RocketMQ 4's."""

    name: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleAccount:
    """One account of both kinds of rules."""

    access_key: str
    secret_key: str
    is_admin: bool = False
    is_disabled: bool = False
    topics: Sequence[Permission] = ()
    groups: Sequence[Permission] = ()
    default_topic: str = "DENY"
    default_group: str = "DENY"

    @property
    def identity(self) -> Identity:
        """A client with the keys of this account."""
        return Identity(self.access_key, self.access_key, self.secret_key)


ADMIN: Final = SampleAccount(access_key="adminuser", secret_key="adminsecret", is_admin=True)
WORKER: Final = SampleAccount(
    access_key="workeruser",
    secret_key="workersecret",
    topics=(
        Permission("Orders", "PUB|SUB"),
        Permission("Sends", "PUB"),
        Permission("Reads", "SUB"),
        Permission("Denied", "DENY"),
    ),
    groups=(Permission("Workers", "SUB"), Permission("Closed", "DENY")),
)
OPEN: Final = SampleAccount(
    access_key="openuser",
    secret_key="opensecret",
    topics=(Permission("Denied", "DENY"),),
    default_topic="PUB|SUB",
    default_group="SUB",
)
NOBODY: Final = SampleAccount(access_key="nobodyuser", secret_key="nobodysecret")
DISABLED: Final = SampleAccount(
    access_key="disableduser", secret_key="disabledsecret", is_disabled=True, default_topic="PUB|SUB"
)
ACCOUNTS: Final = (ADMIN, WORKER, OPEN, NOBODY, DISABLED)

UNSIGNED: Final = Identity("unsigned")
UNKNOWN: Final = Identity("unknown", "strangeruser", "strangersecret")
WRONG_KEY: Final = Identity("wrong key", ADMIN.access_key, "othersecret")
IDENTITIES: Final = (*(account.identity for account in ACCOUNTS), UNSIGNED, UNKNOWN, WRONG_KEY)

PLAIN_PERMISSIONS: Final = {
    "PUB": ["Pub"],
    "SUB": ["Sub"],
    "PUB|SUB": ["Pub", "Sub"],
    "DENY": ["All"],
}
"""RocketMQ 5's actions of RocketMQ 4's words."""


def plain_acl_yml(accounts: Sequence[SampleAccount] = ACCOUNTS) -> str:
    """RocketMQ 4's file with these accounts. It knows no disabled accounts: these are left out."""
    lines = ["globalWhiteRemoteAddresses:", "accounts:"]
    for account in accounts:
        if not account.is_disabled:
            lines += _plain_account(account)
    return "\n".join(lines) + "\n"


def _plain_account(account: SampleAccount) -> list[str]:
    lines = [
        f"- accessKey: {account.access_key}",
        f"  secretKey: {account.secret_key}",
        "  whiteRemoteAddress:",
        f"  admin: {str(account.is_admin).lower()}",
        f"  defaultTopicPerm: {account.default_topic}",
        f"  defaultGroupPerm: {account.default_group}",
    ]
    for key, permissions in (("topicPerms", account.topics), ("groupPerms", account.groups)):
        if permissions:
            lines += [
                f"  {key}:",
                *(f"  - {permission.name}={permission.words}" for permission in permissions),
            ]
    return lines


def user_body(account: SampleAccount) -> bytes:
    """The body of AUTH_CREATE_USER."""
    user = {
        "username": account.access_key,
        "password": account.secret_key,
        "userType": "Super" if account.is_admin else "Normal",
        "userStatus": "disable" if account.is_disabled else "enable",
    }
    return json.dumps(user).encode()


def acl_body(account: SampleAccount) -> bytes | None:
    """The body of AUTH_CREATE_ACL; None for accounts without permissions."""
    custom = [_entry(f"Topic:{topic.name}", topic.words) for topic in account.topics]
    custom += [_entry(f"Group:{group.name}", group.words) for group in account.groups]
    default = [
        _entry(resource, words)
        for resource, words in (("Topic:*", account.default_topic), ("Group:*", account.default_group))
        if words != "DENY"
    ]
    policies = [
        {"policyType": policy_type, "entries": entries}
        for policy_type, entries in (("Custom", custom), ("Default", default))
        if entries
    ]
    if not policies:
        return None
    return json.dumps({"subject": f"User:{account.access_key}", "policies": policies}).encode()


def _entry(resource: str, words: str) -> dict[str, Any]:
    return {
        "resource": resource,
        "actions": PLAIN_PERMISSIONS[words],
        "decision": "Deny" if words == "DENY" else "Allow",
    }
