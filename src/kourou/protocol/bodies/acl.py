"""Accounts of ACL 1.0 (54, 4.x); users and policies of ACL 2.0 (3001 to 3010, 5.x; 29007).

A policy entry allows or denies actions.
"""

from __future__ import annotations

from msgspec import field

from kourou.protocol.bodies.shape import Body
from kourou.protocol.bodies.topics import DataVersion


class PlainAccessConfig(Body):
    """One account of 4.x; permissions are `name=PERM`."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    def __repr__(self) -> str:
        # Without the secret: it must not get into a log or an error.
        return f"PlainAccessConfig(access_key={self.access_key!r})"


class PlainAclConfig(Body):
    """All accounts of a broker, and the addresses that need none (54)."""

    global_white_addrs: list[str] = []
    plain_access_configs: list[PlainAccessConfig] = []


class UserInfo(Body):
    """One user. The password goes only from the tool to the broker."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo(username={self.username!r})"


class PolicyEntryInfo(Body):
    """What may be done with one resource, from where, and whether that is allowed or denied."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """Entries of one type, Custom or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """All policies of one subject, such as `User:alice`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class AccessTables(Body):
    """All users, with their passwords, and all policies: what a slave copies from its master (29007)."""

    data_version: DataVersion = field(default_factory=DataVersion)
    users: list[UserInfo] = []
    acls: list[AclInfo] = []
