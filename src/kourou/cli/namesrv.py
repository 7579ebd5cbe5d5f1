"""The name server as a command: what `mqnamesrv` and `kourou namesrv` share.

Reads configuration and environment, sets up logging, serves. Not here: parsing options.
"""

from __future__ import annotations

import os
from pathlib import Path

from kourou.cli.serving import (
    ServerOptions,
    http_lines,
    log_config,
    log_name,
    log_place,
    log_start,
    logged_failure,
    printed_config,
    run_folder,
    show_notes,
)
from kourou.config import NamesrvConfig, load_namesrv_config
from kourou.config.home import user_home
from kourou.config.option_names import naming_options
from kourou.logs import LogConfig, logging_to

COMPONENT = "namesrv"
DEFAULT_PORT = 9876


def run_namesrv(options: ServerOptions) -> None:
    """Run a name server until a signal stops it, or print its configuration."""
    config, notes = load_namesrv_config(
        options.config_file, options.overrides, environ=os.environ, option_names=options.typed
    )
    notes += _more_notes(options, config)
    show_notes(notes)
    if printed_config(config, options):
        return
    log = log_config(default_log(config), options)
    with (
        logging_to(log),
        logged_failure(COMPONENT),
        naming_options(options.option_names, options.typed),
    ):
        log_start(COMPONENT, notes)
        _serve(config, log)


def default_log(config: NamesrvConfig) -> Path:
    """The log file in the home folder."""
    name = log_name(COMPONENT, config.listen_port, DEFAULT_PORT)
    return Path(config.rocketmq_home or ".") / "logs" / name


def _serve(config: NamesrvConfig, log: LogConfig) -> None:
    # Imported late: printing or rejecting a configuration needs no event loop.
    from kourou.cli.service import Service, run_server
    from kourou.namesrv.server import NameServer

    async def started(server: NameServer) -> None:
        # Scripts wait for the start of this line, which is Apache's.
        boot = f"The Name Server boot success. serializeType=JSON, address {server.address}"
        print(
            f"{boot}\n{log_place(log)}\n{http_lines(server.probe_address, server.metrics_address)}",
            end="",
            flush=True,
        )

    run_server(
        Service(
            lambda: NameServer(config),
            COMPONENT,
            started,
            run_folder(os.environ),
            shown_name="The Name Server",
        )
    )


def _more_notes(options: ServerOptions, config: NamesrvConfig) -> list[str]:
    notes = []
    if options.namesrv_addr is not None:
        notes.append(
            f"-n {options.namesrv_addr} is ignored: name servers do not talk to each other; "
            "bindAddress and listenPort set where this one listens"
        )
    apache = user_home(os.environ) / "namesrv" / "kvConfig.json"
    if not Path(config.kv_config_path or "").exists() and apache.is_file():
        notes.append(
            f"the KV configuration is kept in {config.kv_config_path}; "
            f"set kvConfigPath={apache} to keep using Apache's"
        )
    return notes
