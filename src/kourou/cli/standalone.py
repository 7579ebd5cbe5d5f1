"""`kourou standalone` as a command: log, process, and the line that reports readiness."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.cli.serving import (
    ServerOptions,
    log_config,
    log_place,
    log_start,
    logged_failure,
    probe_line,
    run_folder,
    show_notes,
)
from kourou.config.home import data_home
from kourou.logs import LogConfig, LogLevel, logging_to
from kourou.standalone.options import StandaloneOptions
from kourou.store.disk.store_lock import StoreLock

if TYPE_CHECKING:
    from kourou.standalone.one_process import Standalone
    from kourou.standalone.supervisor import Supervisor

_log = logging.getLogger(__name__)

COMPONENT = "standalone"


@dataclass(frozen=True)
class StandaloneLog:
    """The destination of the log."""

    file: str | None = None
    level: LogLevel = LogLevel.INFO


def default_store() -> Path:
    """The default folder, in the user's data."""
    return data_home(os.environ) / "standalone"


def run_standalone(options: StandaloneOptions, log: StandaloneLog) -> None:
    """Run name server and brokers until a signal stops them."""
    options.check()
    options.make_folder()
    # First, so that nothing is written into the log of servers that are already running there.
    for replica in options.replicas:
        StoreLock.check_free(options.store_of(replica))
    default = options.log_folder / f"{COMPONENT}.log"
    config = log_config(default, ServerOptions(log_file=log.file, log_level=log.level))
    with logging_to(config), logged_failure(COMPONENT):
        log_start(COMPONENT)
        for unserved in options.unserved_stores:
            _log.warning("%s is not served: --brokers %d is fewer than before", unserved, options.brokers)
        _serve(options, config)


def _serve(options: StandaloneOptions, log: LogConfig) -> None:
    # Imported late: rejecting an option needs no event loop.
    from kourou.cli.service import STORE_STOP, Service, run_server

    async def started(server: Standalone | Supervisor) -> None:
        show_notes(server.notes)
        lines = [ready_line(server, options), log_place(log), *server.kernel_lines]
        print(*lines, probe_line(server.probe_address), sep="\n", end="", flush=True)
        warning = await server.address_warning()
        if warning is not None:
            _log.warning("%s", warning)

    run_server(
        Service(
            lambda: _server(options),
            COMPONENT,
            started,
            run_folder(os.environ),
            STORE_STOP,
            shown_name="Kourou",
        )
    )


def _server(options: StandaloneOptions) -> Standalone | Supervisor:
    if options.is_single:
        from kourou.standalone.one_process import Standalone

        return Standalone(options)
    from kourou.standalone.supervisor import Supervisor

    return Supervisor(options)


def ready_line(server: Standalone | Supervisor, options: StandaloneOptions) -> str:
    """The addresses that clients need, in one line; with slaves, also the role of each broker."""
    brokers = ", ".join(server.broker_texts)
    noun = "broker" if options.is_single else "brokers"
    return f"Kourou is ready: namesrvAddr={server.address} ({noun} {brokers}; store {options.store})"
