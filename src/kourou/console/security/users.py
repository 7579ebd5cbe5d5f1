"""UsersFile: the console's users, one a line, with hashed passwords.

    # name  role           password
    ada     administrator  scrypt$16384$8$1$<salt>$<hash>
    bob     reader         scrypt$…

Salt and hash are base64. The file has mode 0600 and is read again when it changes, so that a user who is
removed, or has a new password, is out at once. Lines that cannot be used are errors at the start, and
reported once later, while the last good contents stay in force.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.console.endpoints import Role
from kourou.errors import ConfigError

_log = logging.getLogger(__name__)

ROLES: Final = {role.label: role for role in (Role.READER, Role.ADMINISTRATOR)}
MIN_PASSWORD: Final = 8
_MAX_PASSWORD: Final = 1_024
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_SCHEME: Final = "scrypt"
# 16 MiB and some 50 ms for each attempt.
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1
_MAX_MEMORY: Final = 64 * 1024 * 1024
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class User:
    """One user."""

    name: str
    role: Role
    password_hash: str


class UsersFile:
    """The users in a file; reads it again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._users: dict[str, User] = {}
        self._problem = ""

    def load(self) -> None:
        """Read the file at the start. ConfigError lists every line that cannot be used; also if there are no
        users."""
        stat = self._stat()
        self._users = parse_users(self.path)
        if not self._users:
            raise ConfigError(f"{self.path}: has no users; create one with `kourou console user add NAME`")
        self._seen = stat

    def users(self) -> dict[str, User]:
        """The users by name, as the file has them now."""
        try:
            if (stat := self._stat()) != self._seen:
                self._seen = stat
                self._users = parse_users(self.path)
                self._report("")
        except ConfigError as error:
            self._report(str(error))
        return self._users

    def _report(self, problem: str) -> None:
        """Log a problem when it begins and when it ends: the file is looked at for every request."""
        if problem and problem != self._problem:
            _log.error("%s; the users from before stay in force", problem)
        elif self._problem and not problem:
            _log.info("%s: can be used again", self.path)
        self._problem = problem

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self.path.stat()
        except OSError as error:
            self._seen = None  # one that comes back is read, also if it is the same
            raise ConfigError(
                f"{self.path}: {error.strerror}; create users with `kourou console user add NAME`"
            ) from error
        return stat.st_ino, stat.st_size, stat.st_mtime_ns


def parse_users(path: Path) -> dict[str, User]:
    """The users in a file. ConfigError lists every line that cannot be used."""
    users: dict[str, User] = {}
    problems = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `kourou console user add NAME` creates it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 3:
            problems.append(f"{path}:{number}: expected a name, a role and a password hash")
        elif words[1] not in ROLES:
            problems.append(f"{path}:{number}: role {words[1]!r} must be one of {', '.join(ROLES)}")
        elif not words[2].startswith(f"{_SCHEME}$"):
            problems.append(
                f"{path}:{number}: the password of {words[0]} is not hashed; use `kourou console user add`"
            )
        else:
            users[words[0]] = User(words[0], ROLES[words[1]], words[2])
    if problems:
        raise ConfigError(*problems)
    return users


@contextmanager
def changed_users(path: Path) -> Iterator[dict[str, User]]:
    """The users in a file, none if it does not exist; what becomes of them is written at the end. Changes by
    several processes are made one after the other. ConfigError if the file cannot be used."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file of its own: the other one is replaced.
    with open(path.with_name(f"{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        users = parse_users(path) if path.exists() else {}
        yield users
        write_users(path, users)


def write_users(path: Path, users: dict[str, User]) -> None:
    """Replace the file in one step, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{user.name} {user.role.label} {user.password_hash}" for user in users.values()]
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write("# name role password\n" + "".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def check_new_user(name: str, password: str) -> None:
    """ConfigError if a user cannot have this name or password."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"user {name!r}: use 1 to 64 letters, digits and . _ @ -")
    if not MIN_PASSWORD <= len(password) <= _MAX_PASSWORD:
        raise ConfigError(f"the password must have {MIN_PASSWORD} to {_MAX_PASSWORD:,} characters")


def hash_password(password: str) -> str:
    """The text to store for a password."""
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = _scrypt(password, salt, _COST, _BLOCK, _PARALLEL)
    parts = (_SCHEME, _COST, _BLOCK, _PARALLEL, _base64(salt), _base64(digest))
    return "$".join(map(str, parts))


def is_password(password: str, stored: str) -> bool:
    """Whether a password fits its stored text. Takes some 50 ms: call it in a thread."""
    try:
        _, cost, block, parallel, salt, digest = stored.split("$")
        found = _scrypt(password, base64.b64decode(salt), int(cost), int(block), int(parallel))
        return hmac.compare_digest(found, base64.b64decode(digest))
    except ValueError:
        return False


NO_USER: Final = f"{_SCHEME}${_COST}${_BLOCK}${_PARALLEL}$AAAA$AAAA"
"""Compared with when there is no such user, so that the time does not tell."""


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    text = password[:_MAX_PASSWORD].encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=cost, r=block, p=parallel, maxmem=_MAX_MEMORY)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
