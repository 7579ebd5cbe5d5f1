"""AuthTables: the users and policies that count now, in memory and in `config/` of the store.

Apache keeps them in RocksDB folders `users` and `acls` at the same place. Passwords are in clear, since
signatures need them; only the owner can read the files (private_file.py). A file that cannot be read stops
the start: to go on would be to forget what is denied.

A change is on disk before it acts. Policies are written before users: after a crash in between, a new user
has no policies missing, and a deleted one has none left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from kourou.access.auth.data import AclsFile, AuthData, UsersFile
from kourou.access.private_file import PrivateFile
from kourou.errors import ConfigError, ProtocolError, RequestError
from kourou.protocol.bodies.codec import decode_body, encode_body
from kourou.protocol.bodies.shape import Body
from kourou.protocol.bodies.topics import DataVersion

USERS_FILE: Final = "users.json"
ACLS_FILE: Final = "acls.json"

Content = TypeVar("Content", bound=Body)


class AuthTables:
    """The users and policies of one broker. `current` changes as a whole; `on_change` is called after."""

    def __init__(self, folder: Path, now_ms: Callable[[], int]) -> None:
        self._users_file = PrivateFile(folder / USERS_FILE)
        self._acls_file = PrivateFile(folder / ACLS_FILE)
        self._now_ms = now_ms
        self.current = AuthData()
        self.on_change: list[Callable[[], None]] = []

    def load(self) -> None:
        """Take over what the files have. ConfigError: one is there and cannot be read."""
        self.adopt(self.read())

    def read(self) -> AuthData:
        """What the files have. ConfigError: one is there and cannot be read. Waits for the disk."""
        users = _decoded(self._users_file, UsersFile)
        acls = _decoded(self._acls_file, AclsFile)
        try:
            return AuthData.of(users, acls)
        except RequestError as error:
            raise ConfigError(f"{self._users_file.path.parent}: users.json or acls.json: {error}") from None

    def next(self, data: AuthData) -> AuthData:
        """`data` as the next version of what is here."""
        counter = self.current.version.counter + 1
        return replace(data, version=DataVersion(timestamp=self._now_ms(), counter=counter))

    def persist(self, data: AuthData) -> None:
        """Write `data` to the files; on disk on return. OSError. May wait for the disk."""
        if data.acls != self.current.acls:
            self._acls_file.write(encode_body(data.acls_file()))
        # Always, for the version.
        self._users_file.write(encode_body(data.users_file()))

    def adopt(self, data: AuthData) -> None:
        """From now on `data` counts."""
        self.current = data
        for changed in self.on_change:
            changed()

    def replace(self, data: AuthData) -> None:
        """Write and adopt `data` as the next version, if it says anything new. OSError. May wait for the
        disk."""
        if not data.same_as(self.current):
            data = self.next(data)
            self.persist(data)
            self.adopt(data)


def _decoded(file: PrivateFile, shape: type[Content]) -> Content | None:
    raw = file.read()
    if raw is None:
        return None
    try:
        return decode_body(raw, shape)
    except ProtocolError:
        # Without the text of the error: it may quote the file, which has secrets.
        raise ConfigError(
            f"{file.path} is damaged; repair it, or put {file.backup_path.name}, the content before the last "
            "change, in its place"
        ) from None
