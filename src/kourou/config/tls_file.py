"""RocketMQ's file of TLS keys, which every component reads beside its own."""

from __future__ import annotations

from pathlib import Path

from kourou.config.keys import KeyTable, settings_of
from kourou.config.properties_file import read_properties
from kourou.config.remoting import TlsSettings
from kourou.config.settings import SettingsReader


def read_tls_file(reader: SettingsReader) -> None:
    """Read `tls.config.file`; one that was not asked for may be missing."""
    asked = reader.settings.values.get("tls.config.file")
    path = Path(str(asked or TlsSettings().tls_config_file))
    if not asked and not path.exists():
        return
    tls = KeyTable(key for _, key in settings_of(TlsSettings).values())
    entries = [entry for entry in read_properties(path) if tls.find(entry.key)]
    reader.read_file(entries, str(path))
