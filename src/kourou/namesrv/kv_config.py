"""KvConfig: small settings that clients and tools keep on the name server, by namespace and key.

The only thing a name server writes to disk. File, as RocketMQ's: `kvConfig.json`, one line
`{"configTable":{"namespace":{"key":"value"}}}`; the one before it beside it as `.bak`.
Not here: when to write (disk_worker.py), what a namespace means to its users.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kourou.config.properties_file import read_text, replace_file
from kourou.errors import ConfigError, ProtocolError
from kourou.protocol.bodies import Body, decode_body, encode_body

_log = logging.getLogger(__name__)

# Topic to "broker-a:4;broker-b:4": how many queues of an ordered topic each broker has.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class KvConfigSerializeWrapper(Body):
    config_table: dict[str, dict[str, str]] = {}


class KvConfig:
    """The table in memory. A namespace stays when its last key goes, as in RocketMQ."""

    __slots__ = ("_table",)

    def __init__(self, table: dict[str, dict[str, str]] | None = None) -> None:
        self._table = table or {}

    def get(self, namespace: str, key: str) -> str | None:
        """The value; None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace; None when it was never used."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value, in memory."""
        self._table.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key, in memory; nothing happens when it is not there."""
        self._table.get(namespace, {}).pop(key, None)

    def to_json(self) -> str:
        """The content of kvConfig.json, as text."""
        return encode_body(KvConfigSerializeWrapper(config_table=self._table)).decode()


def load_kv_config(path: Path) -> KvConfig:
    """Read kvConfig.json, or its `.bak` if it is damaged; ConfigError if both are."""
    if not path.exists():
        return KvConfig()
    try:
        return _read(path)
    except ProtocolError as damage:
        backup = _backup(path)
        try:
            table = _read(backup)
        except (ProtocolError, ConfigError):
            raise ConfigError(f"{path}: damaged ({damage}); repair or remove it") from None
        _log.warning("%s is damaged (%s); its values are taken from %s", path, damage, backup)
        return table


def save_kv_config(path: Path, text: str) -> None:
    """Replace kvConfig.json; on return the new text is on disk and the old one in `.bak`."""
    if path.exists():
        replace_file(_backup(path), read_text(path))
    replace_file(path, text)


def _read(path: Path) -> KvConfig:
    return KvConfig(decode_body(read_text(path).encode(), KvConfigSerializeWrapper).config_table)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
