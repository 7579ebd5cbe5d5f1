"""Users and policies of ACL 2.0 (3001 to 3010, 5.x). A policy entry allows or denies actions."""

from __future__ import annotations

from kourou.protocol.bodies.shape import Body


class UserInfo(Body):
    """One user. The password goes only from the tool to the broker."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


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
