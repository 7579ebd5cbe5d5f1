"""A server as a command: shared by name server and broker.

Notes for the operator, printing the configuration, the log file. Not here: the process itself (service.py),
each server's options.
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
    """The options common to `kourou broker` and `kourou namesrv`."""

    config_file: Path | None = None
    # RocketMQ keys set by options, with their values.
    overrides: Mapping[str, str] = field(default_factory=dict)
    # Key to option, for every key that has an option.
    option_names: Mapping[str, str] = field(default_factory=dict)
    namesrv_addr: str | None = None
    print_config: bool = False
    print_important_config: bool = False
    # None is the default file, CONSOLE is no file.
    log_file: str | None = None
    log_level: LogLevel = LogLevel.INFO

    @property
    def typed(self) -> dict[str, str]:
        """Key to option, for the options that were given."""
        return {key: option for key, option in self.option_names.items() if key in self.overrides}


def show_notes(notes: Iterable[str]) -> None:
    """Print notes for the operator."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def log_start(component: str, notes: Iterable[str] = ()) -> None:
    """The first lines of a log: the version, and the notes for the operator."""
    python = platform.python_version()
    _log.info("kourou %s %s, Python %s, process %d", component, __version__, python, os.getpid())
    for note in notes:
        _log.info("note: %s", note)


@contextmanager
def logged_failure(component: str) -> Iterator[None]:
    """Log a failure of the body: a later reader of the log has not seen the terminal."""
    try:
        yield
    except KourouError as error:
        for line in str(error).splitlines():
            _log.error("%s ends: %s", component, line, extra=FILE_ONLY)
        raise


def printed_config(config: ComponentConfig, options: ServerOptions) -> bool:
    """Print the configuration, or its important part, if requested; nothing is served then."""
    if not (options.print_config or options.print_important_config):
        return False
    texts = config.texts(important=not options.print_config)
    sys.stdout.write(format_properties(texts))
    return True


def log_config(default: Path, options: ServerOptions) -> LogConfig:
    """The destination of the log: the given file, or the default one, or the console if that cannot be
    written, as in a container."""
    path = log_path(default, options.log_file)
    if options.log_file is None and path is not None and not can_write(path):
        show_notes([f"cannot write log file {path}; logging to the console"])
        path = None
    return LogConfig(path, options.log_level)


def log_path(default: Path, asked: str | None) -> Path | None:
    """The log file; None is the console."""
    if asked is None:
        return default
    return None if asked == CONSOLE else Path(asked).absolute()


def log_name(component: str, port: int, default_port: int) -> str:
    """One log per port: two servers must not write and rotate the same file."""
    if port == default_port:
        return f"{component}.log"
    return f"{component}-{port or f'pid{os.getpid()}'}.log"


def log_place(log: LogConfig) -> str:
    """A line that says where the log is."""
    return f"log file: {log.path}" if log.path else "log: on this console"


def http_lines(probe_address: str | None, metrics_address: str | None) -> str:
    """Lines with the addresses of health checks and metrics; empty without them."""
    probes = f"health checks: http://{probe_address}/readyz\n" if probe_address else ""
    return probes + (f"metrics: http://{metrics_address}/metrics\n" if metrics_address else "")


def run_folder(environ: Mapping[str, str]) -> Path:
    """The folder of this user's pid files."""
    return state_home(environ) / "run"
