"""The accounts of a standalone with access control: an administrator, and the one of the servers themselves.

Made at the first start with random keys, in files that only their owner can read:

    conf/tools.yml            the administrator's keys, for `mqadmin --acl`
    conf/access.properties    what name server and brokers are configured with

Servers read them from there: options of processes are seen by every user of the machine.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.access.private_file import PrivateFile
from kourou.config.properties import properties_dict
from kourou.config.properties_file import read_properties
from kourou.errors import ConfigError
from kourou.protocol.signature import SigningKeys

TOOLS_FILE: Final = "tools.yml"
SERVER_FILE: Final = "access.properties"
_SECRET_BYTES: Final = 24
_INIT_USER: Final = "initAuthenticationUser"
_INNER: Final = "innerClientAuthenticationCredentials"


@dataclass(frozen=True, slots=True)
class StandaloneAccounts:
    """The accounts of one standalone. `is_new`: they were made just now."""

    administrator: SigningKeys
    inner: SigningKeys
    folder: Path
    is_new: bool = False

    @property
    def tools_file(self) -> Path:
        """The file with the administrator's keys."""
        return self.folder / TOOLS_FILE

    @property
    def server_file(self) -> Path:
        """The file with the keys of servers."""
        return self.folder / SERVER_FILE

    @property
    def broker_keys(self) -> dict[str, str]:
        """The configuration of a broker."""
        return {**self.namesrv_keys, "authorizationEnabled": "true"}

    @property
    def namesrv_keys(self) -> dict[str, str]:
        """The configuration of the name server."""
        admin, inner = self.administrator, self.inner
        return {
            "authenticationEnabled": "true",
            _INIT_USER: json.dumps({"username": admin.access_key, "password": admin.secret_key}),
            _INNER: json.dumps({"accessKey": inner.access_key, "secretKey": inner.secret_key}),
        }


def open_accounts(folder: Path) -> StandaloneAccounts:
    """The accounts of this folder, made if there are none. ConfigError: they cannot be read or written."""
    path = folder / SERVER_FILE
    if PrivateFile(path).read() is not None:
        return _read(path)
    accounts = new_accounts(folder)
    administrator = accounts.administrator
    tools = f"accessKey: {administrator.access_key}\nsecretKey: {administrator.secret_key}\n"
    text = "".join(f"{key}={value}\n" for key, value in accounts.broker_keys.items())
    try:
        # The tools' first: without the other file, both are made anew.
        PrivateFile(accounts.tools_file).write(tools.encode())
        PrivateFile(path).write(text.encode())
    except OSError as error:
        raise ConfigError(f"{folder}: accounts cannot be written: {error.strerror or error}") from error
    return accounts


def new_accounts(folder: Path) -> StandaloneAccounts:
    """Accounts with random keys, which are not written yet."""
    return StandaloneAccounts(_new_keys("admin"), _new_keys("inner"), folder, is_new=True)


def _read(path: Path) -> StandaloneAccounts:
    keys = properties_dict(read_properties(path))
    try:
        user, inner = json.loads(keys[_INIT_USER]), json.loads(keys[_INNER])
        return StandaloneAccounts(
            SigningKeys(user["username"], user["password"]),
            SigningKeys(inner["accessKey"], inner["secretKey"]),
            path.parent,
        )
    except (KeyError, TypeError, ValueError):
        # Without the text of the error: it may quote the file, which has secrets.
        raise ConfigError(
            f"{path}: has no valid {_INIT_USER} and {_INNER}; repair it, or remove it to make new accounts"
        ) from None


def _new_keys(name: str) -> SigningKeys:
    return SigningKeys(f"{name}-{secrets.token_hex(4)}", secrets.token_hex(_SECRET_BYTES))
