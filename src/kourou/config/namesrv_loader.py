"""A name server's configuration from its file, the TLS file, options and the environment.

Order of precedence: options, file, environment, defaults. A file may serve name server and broker;
the broker's keys in it are listed in one note.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kourou.config.component import attributes_of
from kourou.config.home import ROCKETMQ_HOME, data_home
from kourou.config.namesrv import NamesrvConfig
from kourou.config.properties_file import read_properties
from kourou.config.settings import Settings, SettingsReader
from kourou.config.tls_file import read_tls_file


def load_namesrv_config(
    path: Path | None,
    overrides: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    option_names: Mapping[str, str] | None = None,
) -> tuple[NamesrvConfig, list[str]]:
    """Read the configuration; also returns notes for the operator, one line each.

    `overrides` are RocketMQ keys with their text, from options; `option_names` gives the option of a
    key that was not set by --set. ConfigError holds every problem.
    """
    reader = SettingsReader(NamesrvConfig.known_keys(), NamesrvConfig.other_keys)
    if path is not None:
        reader.read_file(read_properties(path), str(path))
    read_tls_file(reader)
    reader.read_options(overrides or {}, option_names or {})
    # The user's data folder need not be usable: a name server without it logs to the console.
    reader.settings.check_folder("rocketmqHome", (environ or {}).get(ROCKETMQ_HOME))
    reader.settings.check()
    _note_foreign(reader.settings, str(path))
    _complete(reader.settings, path, environ or {})
    values = attributes_of(NamesrvConfig, reader.settings.values)
    return NamesrvConfig(**values, extra=reader.settings.extra), reader.settings.notes


def _note_foreign(settings: Settings, source: str) -> None:
    """List once the keys that are not for a name server: it may have a broker's file by mistake."""
    names = list(dict.fromkeys(settings.foreign))
    if names:
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        settings.notes.append(f"{source}: keys of a broker or client have no effect here: {shown}")


def _complete(settings: Settings, path: Path | None, environ: Mapping[str, str]) -> None:
    """Fill in paths that depend on the home folder, and make every path absolute."""
    values = settings.values
    home = Path(str(values.get("rocketmqHome") or data_home(environ))).absolute()
    values["rocketmqHome"] = str(home)
    # Changes go back to the file that was read, whatever an entry in it says, as in Apache.
    stored = path or values.get("configStorePath") or home / "namesrv" / "namesrv.properties"
    values["configStorePath"] = str(Path(str(stored)).absolute())
    kept = values.get("kvConfigPath") or home / "namesrv" / "kvConfig.json"
    values["kvConfigPath"] = str(Path(str(kept)).absolute())
