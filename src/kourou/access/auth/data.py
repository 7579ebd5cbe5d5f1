"""AuthData: all users and policies at one moment, and the content of the files that have them.

    users.json   {"dataVersion": {...}, "users": [{"username", "password", "userType", "userStatus"}, ...]}
    acls.json    {"dataVersion": {...}, "acls": [{"subject", "policies": [...]}, ...]}

Not here: the files (tables.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kourou.access.auth.infos import acl_of, new_user
from kourou.access.auth.model import Acl, User
from kourou.protocol.bodies.acl import AclInfo, UserInfo
from kourou.protocol.bodies.shape import Body
from kourou.protocol.bodies.topics import DataVersion

Value = TypeVar("Value")


class UsersFile(Body):
    """The content of users.json."""

    data_version: DataVersion
    users: list[UserInfo]


class AclsFile(Body):
    """The content of acls.json."""

    data_version: DataVersion
    acls: list[AclInfo]


@dataclass(frozen=True, slots=True)
class AuthData:
    """Users and policies by user name; a change makes a new object."""

    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[str, Acl] = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)

    def with_user(self, user: User) -> AuthData:
        """The same with this user, instead of one of that name."""
        return replace(self, users={**self.users, user.name: user})

    def without_user(self, name: str) -> AuthData:
        """The same without a user and the policies of that user."""
        return replace(self, users=_without(self.users, name), acls=_without(self.acls, name))

    def with_acl(self, acl: Acl) -> AuthData:
        """The same with these policies of a user; empty ones go."""
        if acl.is_empty:
            return self.without_acl(acl.user_name)
        return replace(self, acls={**self.acls, acl.user_name: acl})

    def without_acl(self, name: str) -> AuthData:
        """The same without the policies of a user."""
        return replace(self, acls=_without(self.acls, name))

    def same_as(self, other: AuthData) -> bool:
        """Whether both say the same, whatever their versions."""
        return self.users == other.users and self.acls == other.acls

    def users_file(self) -> UsersFile:
        """What users.json has."""
        users = [self.users[name].info(with_password=True) for name in sorted(self.users)]
        return UsersFile(data_version=self.version, users=users)

    def acls_file(self) -> AclsFile:
        """What acls.json has."""
        acls = [self.acls[name].info() for name in sorted(self.acls)]
        return AclsFile(data_version=self.version, acls=acls)

    @classmethod
    def of(cls, users: UsersFile | None, acls: AclsFile | None) -> AuthData:
        """What the files have; None: there is no such file. RequestError: it makes no sense."""
        known = [new_user(info.username, info) for info in users.users] if users else []
        policies = [acl_of(info.subject, info) for info in acls.acls] if acls else []
        versions = [file.data_version for file in (users, acls) if file is not None]
        return cls(
            {user.name: user for user in known},
            {acl.user_name: acl for acl in policies},
            max(versions, key=lambda version: version.counter, default=DataVersion()),
        )


def _without(table: Mapping[str, Value], name: str) -> dict[str, Value]:
    return {other: value for other, value in table.items() if other != name}
