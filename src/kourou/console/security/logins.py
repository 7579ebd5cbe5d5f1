"""Logins: accounts and their roles: users of the console's file, or accounts of the cluster.

A `Login` is what a right password leads to; a session keeps it in memory. Not here: sessions, failed attempts
(access.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, Protocol

from kourou.client.core.credentials import Credentials
from kourou.console.endpoints import Role
from kourou.console.security.users import NO_USER, UsersFile, is_password


@dataclass(frozen=True, slots=True)
class Login:
    """A user whose password was right."""

    user: str
    role: Role
    proof: str = field(default="", repr=False)
    """The password's hash then, of a user of the file."""
    credentials: Credentials | None = None
    """What this user's requests are signed with, of an account of the cluster."""


class Logins(Protocol):
    """One kind of login."""

    @property
    def wrong(self) -> str:
        """What a login with wrong words is answered."""
        ...

    @property
    def hint(self) -> str:
        """What to do then; may be empty."""
        ...

    @property
    def at_once(self) -> int:
        """How many logins are checked at the same time."""
        ...

    @property
    def max_failures(self) -> tuple[int, int] | None:
        """Wrong logins a minute, from all addresses together: of one user, and of all; None: no limit."""
        ...

    @property
    def renew_s(self) -> float:
        """How old a login may be that is used without renewal."""
        ...

    async def check(self, user: str, password: str) -> Login | None:
        """The login of a user with this password; None if one of them is wrong."""
        ...

    async def renewed(self, login: Login) -> Login | None:
        """The login as it is now; None: it has ended."""
        ...


class FileLogins:
    """Users of the console's file. They have no account of the cluster: their requests are the console's."""

    wrong: Final = "user or password is wrong"
    hint: Final = ""
    # Each hash takes 16 MiB.
    at_once: Final = 2
    # A stranger must not lock an administrator out.
    max_failures: Final = None
    renew_s: Final = 0.0

    def __init__(self, users: UsersFile) -> None:
        self._users = users

    async def check(self, user: str, password: str) -> Login | None:
        found = self._users.users().get(user)
        stored = found.password_hash if found else NO_USER
        is_right = await asyncio.to_thread(is_password, password, stored)
        return Login(user, found.role, stored) if found and is_right else None

    async def renewed(self, login: Login) -> Login | None:
        """A login ends at once when its user is removed or has a new password."""
        found = self._users.users().get(login.user)
        if found is None or found.password_hash != login.proof:
            return None
        return Login(login.user, found.role, login.proof)
