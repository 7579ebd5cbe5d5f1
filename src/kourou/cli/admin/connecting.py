"""How a command connects: name servers, credentials, TLS; from options or a saved context."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kourou.cli.admin.options import Option, ParsedArgs
from kourou.cli.contexts import CLUSTER_VARIABLES, Context, chosen_context
from kourou.cli.problems import UsageError
from kourou.client.core.credentials import Credentials
from kourou.client.core.credentials_sources import credentials_of_environment, read_tools_file
from kourou.client.core.settings import ClientOptions
from kourou.config.properties import properties_dict
from kourou.config.properties_file import read_properties
from kourou.errors import ConfigError
from kourou.transport.settings import ClientTlsConfig

CONNECTING: Final = (
    Option("", "config", "file with rocketmq.namesrv.addr or rocketmq.namesrv.domain", is_ours=True),
    Option(
        "", "context", "saved context to use (kourou context list; default: KOUROU_CONTEXT)", is_ours=True
    ),
    Option(
        "",
        "acl",
        "file with accessKey and secretKey (default: ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY, then "
        "conf/tools.yml of ROCKETMQ_HOME)",
        is_ours=True,
    ),
    Option("", "tls", "encrypt; accept any certificate", takes_value=False, is_ours=True),
    Option(
        "", "tls-config", "encrypt with the settings of this file (tls.client.trustCertPath …)", is_ours=True
    ),
    Option("", "timeout", "milliseconds for one request (default: 5000)", is_ours=True),
)
"""Connection options that Apache's tools do not have."""


def client_options(args: ParsedArgs, *, default_namesrv: str | None = None) -> ClientOptions:
    """The options of an Admin session. ConfigError for unreadable files and missing contexts.

    `default_namesrv` applies if neither options, environment nor a context name a cluster.
    """
    options: ClientOptions = {}
    namesrv, config = args.get("namesrvAddr"), args.get("config")
    chosen = chosen_context(os.environ, name=args.get("context"), is_cluster_given=bool(namesrv or config))
    context = None if chosen is None else chosen[1]
    if namesrv:
        options["namesrv"] = namesrv
    if config:
        options["config_file"] = _existing(config, "--config")
    elif not namesrv and context is not None:
        options["namesrv"] = context.namesrv
    elif not namesrv and default_namesrv and not any(map(os.environ.get, CLUSTER_VARIABLES)):
        options["namesrv"] = default_namesrv
    if credentials := credentials_of(args, context):
        options["credentials"] = credentials
    if tls := tls_of(args, context):
        options["tls"] = tls
    if "timeout" in args:
        if (timeout_ms := args.number("timeout")) <= 0:
            raise UsageError(f"--timeout {timeout_ms}: must be a number of milliseconds above 0")
        options["request_timeout_ms"] = options["connect_timeout_ms"] = timeout_ms
    return options


def tls_of(args: ParsedArgs, context: Context | None) -> bool | ClientTlsConfig:
    """Whether and how connections are encrypted, by the options or the context."""
    if tls_config := args.get("tls-config"):
        return _read_tls(_existing(tls_config, "--tls-config"))
    if args.flag("tls") or context is None:
        return args.flag("tls")
    if context.tls_config:
        return _read_tls(_existing(context.tls_config, "the context's file for TLS,"))
    return context.tls


def _existing(text: str, option: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"{option} {text}: no such file")
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


def credentials_of(args: ParsedArgs, context: Context | None) -> Credentials | None:
    """The keys of a file or of the environment; None without any, like Apache's tools.

    In order of precedence: `--acl`, the context's file, the environment, `conf/tools.yml` of ROCKETMQ_HOME.
    There is no option for a secret key: other users of the machine could read it (`ps`).
    """
    if acl := args.get("acl"):
        return _keys_in(_existing(acl, "--acl"))
    if context is not None and context.acl:
        return _keys_in(_existing(context.acl, "the context's file of keys,"))
    if (credentials := credentials_of_environment()) is not None:
        return credentials
    home = os.environ.get("ROCKETMQ_HOME")
    path = Path(home, "conf", "tools.yml") if home else None
    return read_tools_file(path) if path is not None and path.is_file() else None


def _keys_in(path: Path) -> Credentials:
    """The keys of a file that was named: without any, requests would be unsigned."""
    found = read_tools_file(path)
    if found is None:
        raise ConfigError(f"{path}: accessKey and secretKey are both needed")
    return found
