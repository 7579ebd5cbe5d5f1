"""The name server as a command: what `mqnamesrv` and `kourou namesrv` share.

Reads configuration and environment, sets up the log, serves. Not here: parsing options.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kourou.config import NamesrvConfig, load_namesrv_config
from kourou.config.home import state_home, user_home
from kourou.config.properties import format_properties
from kourou.logs import LogConfig, LogLevel, can_write, logging_to

_log = logging.getLogger(__name__)

COMPONENT = "namesrv"
DEFAULT_PORT = 9876
CONSOLE = "-"


@dataclass(frozen=True)
class NamesrvOptions:
    """What a user may ask for on the command line."""

    config_file: Path | None = None
    # RocketMQ keys that options set, with their text.
    overrides: Mapping[str, str] = field(default_factory=dict)
    namesrv_addr: str | None = None
    print_config: bool = False
    print_important_config: bool = False
    # None is the default file, CONSOLE no file at all.
    log_file: str | None = None
    log_level: LogLevel = LogLevel.INFO


def run_namesrv(options: NamesrvOptions) -> None:
    """Run a name server until a signal stops it, or print its configuration."""
    config, notes = load_namesrv_config(options.config_file, options.overrides, environ=os.environ)
    notes += _more_notes(options, config)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if options.print_config or options.print_important_config:
        important = not options.print_config
        sys.stdout.write(format_properties(config.texts(important=important)))
        return
    log = LogConfig(_usable_log_path(config, options.log_file), options.log_level)
    with logging_to(log):
        for note in notes:
            _log.info("note: %s", note)
        _serve(config, log)


def _usable_log_path(config: NamesrvConfig, asked: str | None) -> Path | None:
    """The log file, or the console where the default file cannot be written, as in a container."""
    path = log_path(config, asked)
    if asked is None and path is not None and not can_write(path):
        print(f"note: log file {path} cannot be written; logging to the console", file=sys.stderr)
        return None
    return path


def log_path(config: NamesrvConfig, asked: str | None) -> Path | None:
    """The log file: the one asked for, else one a port in the home folder.

    Two servers must not write, and rotate, one file.
    """
    if asked is not None:
        return None if asked == CONSOLE else Path(asked).absolute()
    port = config.listen_port or f"pid{os.getpid()}"
    name = COMPONENT if port == DEFAULT_PORT else f"{COMPONENT}-{port}"
    return Path(config.rocketmq_home or ".") / "logs" / f"{name}.log"


def _serve(config: NamesrvConfig, log: LogConfig) -> None:
    # Imported only now: printing a configuration, or finding it wrong, needs no event loop.
    from kourou.cli.service import Server, run_server
    from kourou.namesrv.server import NameServer

    def started(server: Server) -> None:
        # Scripts wait for the beginning of this line, which is Apache's.
        boot = f"The Name Server boot success. serializeType=JSON, address {server.address}"
        where = f"log file: {log.path}" if log.path else "log: on this console"
        print(f"{boot}\n{where}", flush=True)

    run_server(lambda: NameServer(config), COMPONENT, run_folder(os.environ), started)


def run_folder(environ: Mapping[str, str]) -> Path:
    """Where servers of this user leave their pid files."""
    return state_home(environ) / "run"


def _more_notes(options: NamesrvOptions, config: NamesrvConfig) -> list[str]:
    notes = []
    if options.namesrv_addr is not None:
        notes.append(
            f"-n {options.namesrv_addr} is ignored: name servers do not talk to each other; "
            "bindAddress and listenPort say where this one listens"
        )
    apache = user_home(os.environ) / "namesrv" / "kvConfig.json"
    if not Path(config.kv_config_path or "").exists() and apache.is_file():
        notes.append(
            f"the KV configuration is kept in {config.kv_config_path}; "
            f"set kvConfigPath={apache} to go on with Apache's"
        )
    return notes
