"""RocketMQ's file of TLS keys, which every component reads beside its own."""

from __future__ import annotations

from pathlib import Path

from kourou.config.keys import KeyTable, settings_of
from kourou.config.properties_file import read_properties
from kourou.config.remoting import TlsSettings
from kourou.config.settings import SettingsReader


def read_tls_file(reader: SettingsReader) -> None:
    """Read `tls.config.file`; the default one may be missing."""
    given = reader.settings.values.get("tls.config.file")
    path = Path(str(given or TlsSettings().tls_config_file))
    if not given and not path.exists():
        return
    tls = KeyTable(key for _, key in settings_of(TlsSettings).values())
    entries = [entry for entry in read_properties(path) if tls.find(entry.key)]
    reader.read_file(entries, str(path))
