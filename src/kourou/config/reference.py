"""docs/configuration.md, made from the keys: `python -m kourou.config.reference [FILE]`.

A test compares the file with what this makes. Not here: what the keys mean (meanings.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kourou.config.broker import BrokerConfig
from kourou.config.keys import Key, KeyTable, ValueType, format_value
from kourou.config.meanings import AT_START, BROKER, CLIENT, NAMESRV, SHARED, VARIABLES
from kourou.config.namesrv import NamesrvConfig
from kourou.config.other_keys import OTHER_KEYS

_INTRODUCTION: Final = """\
# Configuration

Made from the code by `make docs`; a test keeps it so. Names and defaults are RocketMQ's, unless it is said.

A server reads `key=value` lines from the file of `-c`, in Java's form of properties files. Options weigh \
more than the file, the file more than the environment. `--set key=value` sets any key of a broker. \
`mqbroker -c FILE -p` prints what is in force, `-m` its important part. A program that runs a server \
itself uses the same keys as attributes: `listenPort` is `listen_port` ([embedding.md](embedding.md)).

An unknown key is reported with the nearest one that is known, a bad value with file, line and what is \
allowed; all problems together, and nothing is started. A key without effect is accepted, with a line that \
says what happens instead.

`mqadmin updateBrokerConfig` and `updateNamesrvConfig` change keys while a server runs and write them into \
its file. *At start* says that the next start honours the change; all other keys are honoured at once.
"""
_HEAD: Final = "| key | default | means |\n|---|---|---|"
_NO_EFFECT_HEAD: Final = "| key | default | instead |\n|---|---|---|"


def reference() -> str:
    """The whole document."""
    broker, namesrv = BrokerConfig.known_keys(), NamesrvConfig.known_keys()
    both = KeyTable([*broker, *namesrv])
    parts = [_INTRODUCTION]
    parts += ["## Broker\n", *_sections(BROKER, broker)]
    parts += ["## Name server\n", *_tables(NAMESRV, namesrv)]
    parts += ["## Both\n", *_sections(SHARED, both)]
    parts += ["## Clients\n", _CLIENTS, _names("key", CLIENT)]
    parts += ["## Environment\n", _names("variable", VARIABLES)]
    parts += ["## Broker: accepted, without effect\n", _no_effect(broker)]
    parts += ["## Name server: accepted, without effect\n", _no_effect(namesrv)]
    parts += ["## Parts that are not here\n", _others()]
    return "\n".join(parts)


_CLIENTS: Final = """\
The Python client takes its options as keywords: [client-options.md](client-options.md). These keys may \
stand in a file (`config_file=`, `mqadmin --config`), and are read again every 2 minutes; the TLS keys above \
that begin with `tls.client.` in the file of `mqadmin --tls-config`.
"""


def _sections(sections: Mapping[str, Mapping[str, str]], table: KeyTable) -> Iterator[str]:
    for title, meanings in sections.items():
        yield f"### {title}\n"
        yield _rows(meanings, table)


def _tables(sections: Mapping[str, Mapping[str, str]], table: KeyTable) -> Iterator[str]:
    return (_rows(meanings, table) for meanings in sections.values())


def _rows(meanings: Mapping[str, str], table: KeyTable) -> str:
    return _table(_HEAD, (_row(_key(table, name), text) for name, text in meanings.items()))


def _key(table: KeyTable, name: str) -> Key:
    key = table.find(name)
    assert key is not None, f"meanings.py has a text for {name}, which is not a key"
    return key


def _row(key: Key, text: str) -> str:
    words = [text, *_allowed(key)]
    if key.name in AT_START:
        words.append("*At start.*")
    if key.old_names:
        words.append(f"Also {', '.join(f'`{name}`' for name in key.old_names)}.")
    return f"| `{key.name}` | {_default(key)} | {' '.join(words)} |"


def _allowed(key: Key) -> Iterator[str]:
    """What a value may be, where that is not said by its default."""
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
        "Keys of Apache's controller, container, authentication and tiered storage are known and have no "
        f"effect: {words}.\n"
    )


def _names(kind: str, texts: Mapping[str, str]) -> str:
    return _table(
        f"| {kind} | means |\n|---|---|", (f"| `{name}` | {text} |" for name, text in texts.items())
    )


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, *rows, ""])


def honoured_without_meaning() -> list[str]:
    """Keys that do something and have no text; a test wants none."""
    told = {
        "broker": {key for section in (*BROKER.values(), *SHARED.values()) for key in section},
        "namesrv": {key for section in (*NAMESRV.values(), *SHARED.values()) for key in section},
    }
    tables = {"broker": BrokerConfig.known_keys(), "namesrv": NamesrvConfig.known_keys()}
    return [
        f"{component}: {key.name}"
        for component, table in tables.items()
        for key in table
        if not key.instead and key.name not in told[component]
    ]


def main() -> None:
    """Write the document, or print it."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference())
    else:
        sys.stdout.write(reference())


if __name__ == "__main__":
    main()
