"""A server as a command: what the commands of name server and broker share.

Notes to the operator, the configuration printed, the log's file. Not here: the process itself
(service.py), each server's options.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kourou import __version__
from kourou.config.component import ComponentConfig
from kourou.config.home import state_home
from kourou.config.properties import format_properties
from kourou.errors import KourouError
from kourou.logs import FILE_ONLY, LogConfig, LogLevel, can_write

_log = logging.getLogger(__name__)

CONSOLE = "-"


@dataclass(frozen=True)
class ServerOptions:
    """What a user may ask for on the command line."""

    config_file: Path | None = None
    # RocketMQ keys that options set, with their text.
    overrides: Mapping[str, str] = field(default_factory=dict)
    # Key to option, for every key that the command has an option of its own for.
    option_names: Mapping[str, str] = field(default_factory=dict)
    namesrv_addr: str | None = None
    print_config: bool = False
    print_important_config: bool = False
    # None is the default file, CONSOLE no file at all.
    log_file: str | None = None
    log_level: LogLevel = LogLevel.INFO

    @property
    def typed(self) -> dict[str, str]:
        """Key to option, for the options that were given."""
        return {key: option for key, option in self.option_names.items() if key in self.overrides}


def show_notes(notes: Iterable[str]) -> None:
    """Tell the operator, who is at the terminal."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def log_start(component: str, notes: Iterable[str] = ()) -> None:
    """The first lines of a log: who writes it, and what the operator was told."""
    python = platform.python_version()
    _log.info("kourou %s %s, Python %s, process %d", component, __version__, python, os.getpid())
    for note in notes:
        _log.info("note: %s", note)


@contextmanager
def logged_failure(component: str) -> Iterator[None]:
    """Log what the body fails of: who reads the log later has not seen the terminal."""
    try:
        yield
    except KourouError as error:
        for line in str(error).splitlines():
            _log.error("%s ends: %s", component, line, extra=FILE_ONLY)
        raise


def printed_config(config: ComponentConfig, options: ServerOptions) -> bool:
    """Print the configuration, or its important part, if that was asked for; then nothing is served."""
    if not (options.print_config or options.print_important_config):
        return False
    texts = config.texts(important=not options.print_config)
    sys.stdout.write(format_properties(texts))
    return True


def log_config(default: Path, options: ServerOptions) -> LogConfig:
    """Where the log goes: the file asked for, else the default, else the console where the default
    cannot be written, as in a container."""
    path = log_path(default, options.log_file)
    if options.log_file is None and path is not None and not can_write(path):
        show_notes([f"log file {path} cannot be written; logging to the console"])
        path = None
    return LogConfig(path, options.log_level)


def log_path(default: Path, asked: str | None) -> Path | None:
    """The log file; None is the console."""
    if asked is None:
        return default
    return None if asked == CONSOLE else Path(asked).absolute()


def log_name(component: str, port: int, default_port: int) -> str:
    """One log a port: two servers must not write, and rotate, one file."""
    if port == default_port:
        return f"{component}.log"
    return f"{component}-{port or f'pid{os.getpid()}'}.log"


def log_place(log: LogConfig) -> str:
    """A line that says where the log is."""
    return f"log file: {log.path}" if log.path else "log: on this console"


def probe_line(address: str | None) -> str:
    """A line that says where health checks are answered; nothing where they are not."""
    return f"health checks: http://{address}/readyz\n" if address else ""


def run_folder(environ: Mapping[str, str]) -> Path:
    """Where servers of this user leave their pid files."""
    return state_home(environ) / "run"
