"""docs/configuration.md, generated from the keys: `python -m kourou.config.reference [FILE]`.

A test compares the file with the result. Not here: what a key means, which its declaration states.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from kourou.config.access_settings import (
    AccessGateSettings,
    AccessSettings,
    AuditLogSettings,
    LockoutSettings,
)
from kourou.config.broker import BrokerConfig
from kourou.config.broker_settings import BrokerSettings
from kourou.config.component import ComponentConfig
from kourou.config.failover_settings import FailoverSettings
from kourou.config.inner_credentials import InnerCredentialsSettings
from kourou.config.keys import Key, KeyTable, ValueType, format_value, settings_of
from kourou.config.metrics_settings import MetricsSettings
from kourou.config.namesrv import NamesrvConfig
from kourou.config.namesrv_access_settings import NamesrvAccessSettings
from kourou.config.other_keys import OTHER_KEYS
from kourou.config.proxy import ProxyConfig
from kourou.config.remoting import ListeningTlsSettings, OutgoingTlsSettings, RemotingServerSettings
from kourou.config.replication_settings import ReplicationSettings
from kourou.config.store_settings import StoreSettings

_BROKER_SETTINGS: Final = (
    BrokerSettings,
    StoreSettings,
    ReplicationSettings,
    FailoverSettings,
    MetricsSettings,
    AccessSettings,
    LockoutSettings,
    AccessGateSettings,
    AuditLogSettings,
)
_INTRODUCTION: Final = """\
# Configuration

Generated from the code by `make docs`. Names and defaults are RocketMQ's unless noted.

A server reads `key=value` lines from the file given by `-c`, a Java properties file. Options take \
precedence over the file, and the file over the environment. `--set key=value` sets any key of a broker. \
`mqbroker -c FILE -p` prints the values in force, `-m` the important ones. A program that embeds a server \
uses the same keys as attributes: `listenPort` is `listen_port` ([embedding.md](embedding.md)).

An unknown key is reported together with the most similar known one, a bad value with file, line and the \
allowed values. All problems are reported together, and nothing is started. A key without effect is \
accepted, with a note about what happens instead.

`mqadmin updateBrokerConfig` and `updateNamesrvConfig` change keys of a running server and save them to its \
file. *At start* marks keys whose change takes effect at the next start, which both commands note; all \
others take effect at once.
"""
_PROXY: Final = """\
Keys of `rmq-proxy.json`, the file of `kourou proxy -c` and `mqbroker --enable-proxy -pc`, a JSON object; \
those of *TLS of outgoing connections* and *Access control* above may stand in it, too ([grpc.md](grpc.md)).
"""
_CLIENTS: Final = """\
The Python client takes its options as keywords: [client-options.md](client-options.md). These keys may \
stand in a file (`config_file=`, `mqadmin --config`), which is read again every 2 minutes; the TLS keys \
above that begin with `tls.client.` in the file of `mqadmin --tls-config`.
"""
_HEAD: Final = "| key | default | meaning |\n|---|---|---|"
_NO_EFFECT_HEAD: Final = "| key | default | instead |\n|---|---|---|"

# Keys of a client's file (`config_file=`, `mqadmin --config`); everything else is a keyword (client.md).
_CLIENT_KEYS: Final[Mapping[str, str]] = {
    "rocketmq.namesrv.addr": "Name servers, `host:port` separated by `;`.",
    "rocketmq.namesrv.domain": "Without these: the host of an HTTP address service.",
    "rocketmq.namesrv.domain.subgroup": "The last part of its address; `nsaddr` if not set.",
}
_VARIABLES: Final[Mapping[str, str]] = {
    "NAMESRV_ADDR": "Name servers of brokers, clients and `mqadmin`, unless given otherwise.",
    "ROCKETMQ_HOME": "`rocketmqHome` if it is not set. `mqadmin` reads `conf/tools.yml` in it.",
    "ROCKETMQ_NAMESRV_DOMAIN": "`rocketmq.namesrv.domain` of clients.",
    "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP": "`rocketmq.namesrv.domain.subgroup` of clients.",
    "KOUROU_CONTEXT": "The saved context that commands use ([commands.md](commands.md)).",
    "XDG_CONFIG_HOME": "Saved contexts are in `kourou/contexts.json` below it; `~/.config` if not set.",
    "XDG_DATA_HOME": "Logs and data are in `kourou` below it; `~/.local/share` if not set.",
    "XDG_STATE_HOME": "`mqshutdown` finds servers by files in `kourou/run` below it; `~/.local/state` if not "
    "set.",
    "KOUROU_MQADMIN_FORMAT": "`4.9`: `mqadmin` prints as RocketMQ 4.9 does.",
}


def reference() -> str:
    broker, namesrv = BrokerConfig.known_keys(), NamesrvConfig.known_keys()
    parts = [_INTRODUCTION]
    parts += ["## Broker\n", *_sections(*_BROKER_SETTINGS)]
    parts += ["## Name server\n", _rows(_honoured(NamesrvConfig)), *_sections(NamesrvAccessSettings)]
    parts += [
        "## Both\n",
        *_sections(
            ComponentConfig,
            RemotingServerSettings,
            ListeningTlsSettings,
            OutgoingTlsSettings,
            InnerCredentialsSettings,
        ),
    ]
    parts += ["## Proxy\n", _PROXY, *_sections(ProxyConfig)]
    parts += ["## Clients\n", _CLIENTS, _names("key", _CLIENT_KEYS)]
    parts += ["## Environment\n", _names("variable", _VARIABLES)]
    parts += ["## Broker: accepted, without effect\n", _no_effect(broker)]
    parts += ["## Name server: accepted, without effect\n", _no_effect(namesrv)]
    parts += ["## Proxy: accepted, without effect\n", _no_effect(ProxyConfig.known_keys())]
    parts += ["## Components that do not exist here\n", _others()]
    return "\n".join(parts)


def _sections(*config_types: type) -> Iterator[str]:
    for config_type in config_types:
        for title, keys in groupby(_honoured(config_type), key=lambda key: key.section):
            yield f"### {title}\n"
            yield _rows(keys)


def _honoured(config_type: type) -> Iterator[Key]:
    """The keys that the class itself declares, in that order."""
    keys = dict(settings_of(config_type).values())
    declared = (keys[attribute] for attribute in config_type.__annotations__ if attribute in keys)
    return (key for key in declared if not key.instead)


def _rows(keys: Iterable[Key]) -> str:
    return _table(_HEAD, map(_row, keys))


def _row(key: Key) -> str:
    words = [key.doc, *_allowed(key)]
    if not key.live:
        words.append("*At start.*")
    if key.old_names:
        words.append(f"Also {', '.join(f'`{name}`' for name in key.old_names)}.")
    return f"| `{key.name}` | {_default(key)} | {' '.join(words)} |"


def _allowed(key: Key) -> Iterator[str]:
    """The allowed range, where it is not obvious."""
    if key.type in (ValueType.INT, ValueType.LONG) and not key.clamped:
        if key.low is not None and key.high is not None:
            yield f"From {key.low:,} to {key.high:,}."
        elif key.low is not None and key.low > 1:
            yield f"At least {key.low:,}."


def _default(key: Key) -> str:
    text = format_value(key.default)
    return f"`{text}`" if text else ""


def _no_effect(table: KeyTable) -> str:
    keys = sorted((key for key in table if key.instead), key=lambda key: key.name.lower())
    return _table(_NO_EFFECT_HEAD, (f"| `{key.name}` | {_default(key)} | {key.instead} |" for key in keys))


def _others() -> str:
    names = sorted((key.name for key in OTHER_KEYS), key=str.lower)
    words = ", ".join(f"`{name}`" for name in names)
    return (
        "The keys of Apache's controller, container and tiered storage are accepted and have "
        f"no effect: {words}.\n"
    )


def _names(kind: str, texts: Mapping[str, str]) -> str:
    return _table(
        f"| {kind} | meaning |\n|---|---|", (f"| `{name}` | {text} |" for name, text in texts.items())
    )


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, *rows, ""])


def main() -> None:
    """Write the document to a file, or print it."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference())
    else:
        sys.stdout.write(reference())


if __name__ == "__main__":
    main()
