"""How a command connects: name servers, keys of access control, TLS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kourou.cli.admin.options import Given, Option
from kourou.client.credentials import Credentials
from kourou.client.settings import ClientOptions
from kourou.config.properties import properties_dict
from kourou.config.properties_file import read_properties
from kourou.errors import ConfigError
from kourou.transport.settings import ClientTlsConfig

CONNECTING: Final = (
    Option("", "config", "file with rocketmq.namesrv.addr or rocketmq.namesrv.domain", is_ours=True),
    Option("", "acl", "file with accessKey and secretKey (conf/tools.yml of ROCKETMQ_HOME)", is_ours=True),
    Option("", "tls", "encrypt; any certificate is trusted", takes_value=False, is_ours=True),
    Option("", "tls-config", "encrypt as this file says (tls.client.trustCertPath …)", is_ours=True),
    Option("", "timeout", "milliseconds for one request, 5000 if not given", is_ours=True),
)
"""The options of ours that say how."""


def client_options(given: Given) -> ClientOptions:
    """What an Admin is told. ConfigError for files that cannot be read."""
    options: ClientOptions = {}
    if namesrv := given.get("namesrvAddr"):
        options["namesrv"] = namesrv
    if config := given.get("config"):
        options["config_file"] = _existing(config, "--config")
    if credentials := _credentials(given):
        options["credentials"] = credentials
    if tls_config := given.get("tls-config"):
        options["tls"] = _read_tls(_existing(tls_config, "--tls-config"))
    elif given.flag("tls"):
        options["tls"] = True
    if "timeout" in given:
        if (timeout_ms := given.number("timeout")) <= 0:
            raise ConfigError(f"--timeout {timeout_ms}: must be a number of milliseconds above 0")
        options["request_timeout_ms"] = options["connect_timeout_ms"] = timeout_ms
    return options


def _existing(text: str, option: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"{option} {text}: there is no such file")
    return path


def _read_tls(path: Path) -> ClientTlsConfig:
    keys = properties_dict(read_properties(path))

    def file_of(key: str) -> Path | None:
        return Path(keys[key]) if keys.get(key) else None

    return ClientTlsConfig(
        enable=True,
        cert_path=file_of("tls.client.certPath"),
        key_path=file_of("tls.client.keyPath"),
        key_password=keys.get("tls.client.keyPassword"),
        trust_cert_path=file_of("tls.client.trustCertPath"),
        auth_server=keys.get("tls.client.authServer", "false").lower() == "true",
    )


def _credentials(given: Given) -> Credentials | None:
    """The keys of tools.yml; None without such a file, as Apache's tools go on then."""
    if acl := given.get("acl"):
        return read_tools_file(_existing(acl, "--acl"))
    home = os.environ.get("ROCKETMQ_HOME")
    path = Path(home, "conf", "tools.yml") if home else None
    return read_tools_file(path) if path is not None and path.is_file() else None


def read_tools_file(path: Path) -> Credentials | None:
    """The keys of a `tools.yml`; None if it has none. ConfigError if it cannot be read or lacks one."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    keys = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() in ("accessKey", "secretKey", "securityToken"):
            keys[name.strip()] = rest.partition(" #")[0].strip().strip("'\"")
    access_key, secret_key = keys.get("accessKey", ""), keys.get("secretKey", "")
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise ConfigError(f"{path}: accessKey and secretKey are both needed")
    return Credentials(access_key, secret_key, keys.get("securityToken"))
