"""The broker as a command: what `mqbroker` and `kourou broker` share.

Reads configuration and environment, sets up logging, serves. Not here: parsing options.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

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
from kourou.config import BrokerConfig, load_broker_config
from kourou.config.option_names import naming_options
from kourou.logs import LogConfig, logging_to
from kourou.store.disk.store_lock import StoreLock

if TYPE_CHECKING:
    from kourou.broker.controller import BrokerController
    from kourou.failover.member import FailoverMember

_log = logging.getLogger(__name__)

COMPONENT = "broker"
DEFAULT_PORT = 10_911


@dataclass(frozen=True)
class BrokerOptions(ServerOptions):
    """The command-line options of `kourou broker`."""

    # RocketMQ keys of --set, with their values.
    settings: Mapping[str, str] = field(default_factory=dict)
    # A child of `standalone`: no pid file, and it stops when standard input ends.
    is_supervised: bool = False


def run_broker(options: BrokerOptions) -> None:
    """Run a broker until a signal stops it, or print its configuration."""
    config, notes = load_broker_config(
        options.config_file,
        {**options.settings, **options.overrides},
        environ=os.environ,
        option_names=options.typed,
    )
    notes += _more_notes(config)
    show_notes(notes)
    if printed_config(config, options):
        return
    # First, so that nothing is written into the log of a broker that is already running there.
    StoreLock.check_free(Path(config.store_path_root_dir or "."))
    log = log_config(default_log(config), options)
    with (
        logging_to(log),
        logged_failure(COMPONENT),
        naming_options(options.option_names, options.typed),
    ):
        log_start(COMPONENT, notes)
        _serve(config, log, options)


def default_log(config: BrokerConfig) -> Path:
    """The log file in the home folder."""
    name = log_name(COMPONENT, config.listen_port, DEFAULT_PORT)
    return Path(config.rocketmq_home or ".") / "logs" / name


def _serve(config: BrokerConfig, log: LogConfig, options: BrokerOptions) -> None:
    # Imported late: printing or rejecting a configuration needs no event loop.
    from kourou.cli.service import STORE_STOP, Service, run_server

    async def started(broker: BrokerController | FailoverMember) -> None:
        _print_booted(broker, log)
        await _warn_of_address(broker)

    run_server(
        Service(
            lambda: make_broker(config),
            COMPONENT,
            started,
            None if options.is_supervised else run_folder(os.environ),
            STORE_STOP,
            stops_with_parent=options.is_supervised,
            shown_name="" if options.is_supervised else f"The broker[{config.broker_name}]",
        )
    )


def make_broker(config: BrokerConfig) -> BrokerController | FailoverMember:
    """The broker of a configuration: one with a role of its own, or a member of a fail-over set."""
    if config.has_failover:
        from kourou.failover.member import FailoverMember

        return FailoverMember(config)
    from kourou.broker.controller import BrokerController

    return BrokerController(config)


async def _warn_of_address(broker: BrokerController | FailoverMember) -> None:
    from kourou.broker.registration.advertised_address import reach_warning

    warning = await reach_warning(broker.config.bind_address, broker.config.broker_ip1, broker.port)
    if warning is not None:
        _log.warning("%s", warning)


def _print_booted(broker: BrokerController | FailoverMember, log: LogConfig) -> None:
    # Scripts wait for the start of this line, which is Apache's.
    config = broker.config
    boot = f"The broker[{config.broker_name}, {broker.address}] boot success. serializeType=JSON"
    names = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
    probes = http_lines(broker.probe_address, broker.metrics_address)
    print(f"{boot}{names}\n{log_place(log)}\n{broker.kernel}\n{probes}", end="", flush=True)


def _more_notes(config: BrokerConfig) -> list[str]:
    if config.namesrv_addr or config.rmq_address_server_domain:
        return []
    return [
        "no name server is configured, so clients cannot find this broker; "
        "use -n host:port, namesrvAddr, or the variable NAMESRV_ADDR"
    ]
