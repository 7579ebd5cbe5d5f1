"""Where credentials come from that are not written into a program: a file, the environment.

Not here: command lines, which other users of a machine can read (`ps`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kourou.client.core.credentials import Credentials
from kourou.errors import ConfigError

ACCESS_KEY_VARIABLE: Final = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE: Final = "ROCKETMQ_SECURITY_TOKEN"

_NAMES: Final = ("accessKey", "secretKey", "securityToken")


def credentials_of_environment(environ: Mapping[str, str] | None = None) -> Credentials | None:
    """The keys in ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY; None without them. ConfigError if only one is
    there."""
    values = os.environ if environ is None else environ
    access_key, secret_key = values.get(ACCESS_KEY_VARIABLE, ""), values.get(SECRET_KEY_VARIABLE, "")
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise ConfigError(f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} are both needed")
    return Credentials(access_key, secret_key, values.get(SECURITY_TOKEN_VARIABLE) or None)


def read_tools_file(path: Path) -> Credentials | None:
    """The keys of a file of Apache's tools or clients, `accessKey: …` (`tools.yml`) or `accessKey=…` (`key`);
    None if it has none. ConfigError if it cannot be read or has only one."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    keys = dict(filter(None, map(_entry, text.splitlines())))
    access_key, secret_key = keys.get("accessKey", ""), keys.get("secretKey", "")
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise ConfigError(f"{path}: accessKey and secretKey are both needed")
    return Credentials(access_key, secret_key, keys.get("securityToken") or None)


def _entry(line: str) -> tuple[str, str] | None:
    """Name and value of a line; a value may contain the other separator."""
    for name in _NAMES:
        rest = line.strip().removeprefix(name).lstrip()
        if line.strip().startswith(name) and rest[:1] in (":", "="):
            return name, rest[1:].partition(" #")[0].strip().strip("'\"")
    return None
