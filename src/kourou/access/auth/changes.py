"""Creating, changing and deleting users and policies, as RocketMQ's admin requests do.

Each takes the data as they are and returns them as they shall be; RequestError, in RocketMQ's words, if it
is refused. Only Super users may create or change Super users.
"""

from __future__ import annotations

from kourou.access.auth.data import AuthData
from kourou.access.auth.infos import (
    acl_of,
    changed_user,
    checked_name,
    checked_subject,
    merged,
    new_user,
    policy_type_of,
    refuse,
    resource_of,
)
from kourou.access.auth.model import Acl, PolicyType, User, subject_of
from kourou.protocol.bodies.acl import AclInfo, UserInfo
from kourou.protocol.codes import ResponseCode


def create_user(data: AuthData, name: str | None, info: UserInfo, *, by_super: bool) -> AuthData:
    """Create a user."""
    user = new_user(name, info)
    if user.is_super and not by_super:
        refuse("The super user can only be create by super user", ResponseCode.SYSTEM_ERROR)
    if user.name in data.users:
        refuse("The user is existed")
    return data.with_user(user)


def update_user(data: AuthData, name: str | None, info: UserInfo, *, by_super: bool) -> AuthData:
    """Change what is given of a user."""
    old = data.users.get(checked_name(name))
    if old is None:
        refuse("The user is not exist")
    new = changed_user(old, info)
    if not by_super and (old.is_super or new.is_super):
        code = ResponseCode.NO_PERMISSION if old.is_super else ResponseCode.SYSTEM_ERROR
        refuse("The super user can only be update by super user", code)
    return data.with_user(new)


def delete_user(data: AuthData, name: str | None, *, by_super: bool) -> AuthData:
    """Delete a user with all policies; nothing happens if there is none."""
    old = data.users.get(checked_name(name or " "))
    if old is not None and old.is_super and not by_super:
        refuse("The super user can only be update by super user")
    return data.without_user(name or "")


def change_acl(data: AuthData, subject: str | None, info: AclInfo) -> AuthData:
    """Add entries to the policies of a user, each instead of one of the same resource: what RocketMQ does to
    create policies and to change them."""
    added = acl_of(subject, info)
    name = added.user_name
    if name not in data.users:
        refuse(f"The subject of {subject_of(name)} is not exist.")
    acl = data.acls.get(name, Acl(name))
    for policy_type in PolicyType:
        acl = merged(acl, policy_type, added.entries(policy_type))
    return data.with_acl(acl)


def delete_acl(
    data: AuthData, subject: str | None, policy_type: str | None, resource: str | None
) -> AuthData:
    """Delete the entry of a resource, or all policies of a user if none is given."""
    name = checked_subject(subject)
    chosen_type = policy_type_of(policy_type)
    pattern = resource_of(resource) if (resource or "").strip() else None
    if name not in data.users:
        refuse("The subject is not exist.")
    acl = data.acls.get(name)
    if acl is None:
        refuse("The acl is not exist.")
    if pattern is None:
        return data.without_acl(name)
    kept = [entry for entry in acl.entries(chosen_type) if entry.resource != pattern]
    return data.with_acl(acl.with_entries(chosen_type, kept))


# -- reading -----------------------------------------------------------------------------------------


def users_like(data: AuthData, text: str | None) -> list[User]:
    """The users whose names contain `text`, sorted."""
    return [data.users[name] for name in sorted(data.users) if (text or "") in name]


def acl_of_subject(data: AuthData, subject: str | None) -> Acl | None:
    """The policies of a subject; None if it has none."""
    name = checked_subject(subject)
    if name not in data.users:
        refuse("The subject is not exist.")
    return data.acls.get(name)


def acls_like(data: AuthData, subject_text: str | None, resource_text: str | None) -> list[Acl]:
    """The policies of subjects that contain one text, with those entries whose resource contains another."""
    found = [
        _with_resources_like(data.acls[name], resource_text or "")
        for name in sorted(data.acls)
        if (subject_text or "") in subject_of(name)
    ]
    return [acl for acl in found if not acl.is_empty]


def _with_resources_like(acl: Acl, text: str) -> Acl:
    for policy_type in PolicyType:
        acl = acl.with_entries(
            policy_type, (entry for entry in acl.entries(policy_type) if text in str(entry.resource))
        )
    return acl
