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
from kourou.errors import ConfigError
from kourou.logs import LogConfig, logging_to
from kourou.store.disk.store_lock import StoreLock

if TYPE_CHECKING:
    from kourou.broker.controller import BrokerController
    from kourou.cli.proxy import ConfiguredProxy
    from kourou.config.proxy import ProxyConfig
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
    # Whether a proxy for gRPC clients runs in the same process, and its rmq-proxy.json.
    has_proxy: bool = False
    proxy_config_file: Path | None = None


def run_broker(options: BrokerOptions) -> None:
    """Run a broker until a signal stops it, or print its configuration."""
    config, notes = load_broker_config(
        options.config_file,
        {**options.settings, **options.overrides},
        environ=os.environ,
        option_names=options.typed,
    )
    notes += _more_notes(config)
    proxy = _proxy_config(options, config, notes)
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
        _serve(config, proxy, log, options)


def default_log(config: BrokerConfig) -> Path:
    """The log file in the home folder."""
    name = log_name(COMPONENT, config.listen_port, DEFAULT_PORT)
    return Path(config.rocketmq_home or ".") / "logs" / name


def _proxy_config(options: BrokerOptions, config: BrokerConfig, notes: list[str]) -> ProxyConfig | None:
    """The configuration of the proxy in the broker's process; None: there is none. Adds its notes."""
    if not options.has_proxy:
        if options.proxy_config_file is not None:
            notes.append(f"{options.proxy_config_file} is not used: --enable-proxy starts a proxy")
        return None
    from kourou.cli.proxy import check_installed
    from kourou.config.proxy_loader import load_proxy_config

    check_installed()
    proxy, more = load_proxy_config(options.proxy_config_file, environ=os.environ)
    notes += more
    if not (proxy.namesrv_addr or config.namesrv_addr):
        raise ConfigError("--enable-proxy needs a name server: -n host:port, or namesrvAddr")
    return proxy


def _serve(config: BrokerConfig, proxy: ProxyConfig | None, log: LogConfig, options: BrokerOptions) -> None:
    # Imported late: printing or rejecting a configuration needs no event loop.
    from kourou.cli.service import STORE_STOP, Service, run_server

    async def started(server: _BrokerWithProxy) -> None:
        _print_booted(server.broker, log, server.grpc_line)
        await _warn_of_address(server.broker)

    run_server(
        Service(
            lambda: _BrokerWithProxy(make_broker(config), proxy),
            COMPONENT,
            started,
            None if options.is_supervised else run_folder(os.environ),
            STORE_STOP,
            stops_with_parent=options.is_supervised,
            shown_name="" if options.is_supervised else f"The broker[{config.broker_name}]",
        )
    )


class _BrokerWithProxy:
    """A broker, and a proxy for gRPC clients in its process if it is configured."""

    def __init__(self, broker: BrokerController | FailoverMember, config: ProxyConfig | None) -> None:
        self.broker = broker
        self._config = config
        self._proxy: ConfiguredProxy | None = None

    @property
    def address(self) -> str:
        """The broker's."""
        return self.broker.address

    @property
    def grpc_line(self) -> str:
        """The line with the address of gRPC clients, if there is one."""
        if self._proxy is None:
            return ""
        from kourou.cli.proxy import proxy_line

        return f"{proxy_line(self._proxy)}\n"

    async def start(self) -> None:
        """Start the broker, then the proxy."""
        await self.broker.start()
        if self._config is None:
            return
        from kourou.broker.controller import BrokerController
        from kourou.cli.proxy import ConfiguredProxy
        from kourou.transport.from_config import server_settings

        # The broker of a fail-over set is another object after each change of its role: by TCP.
        near = self.broker if isinstance(self.broker, BrokerController) else None
        config = self.broker.config
        proxy = ConfiguredProxy(
            self._config,
            broker=near,
            namesrv_addr=config.namesrv_addr,
            broker_tls=server_settings(config).tls,
        )
        try:
            await proxy.start()
        except BaseException:
            await self.broker.stop()
            raise
        self._proxy = proxy

    async def stop(self, timeout_ms: int) -> None:
        """Stop the proxy first: it is a client of the broker."""
        try:
            if self._proxy is not None:
                await self._proxy.stop(timeout_ms)
        finally:
            await self.broker.stop(timeout_ms)

    async def wait_failed(self) -> None:
        """Raise what either died of."""
        from kourou.transport.tasks import wait_first_failed

        await wait_first_failed(self.broker, self._proxy)


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


def _print_booted(broker: BrokerController | FailoverMember, log: LogConfig, grpc_line: str) -> None:
    # Scripts wait for the start of this line, which is Apache's.
    config = broker.config
    boot = f"The broker[{config.broker_name}, {broker.address}] boot success. serializeType=JSON"
    names = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
    probes = http_lines(broker.probe_address, broker.metrics_address)
    print(f"{boot}{names}\n{grpc_line}{log_place(log)}\n{broker.kernel}\n{probes}", end="", flush=True)


def _more_notes(config: BrokerConfig) -> list[str]:
    if config.namesrv_addr or config.rmq_address_server_domain:
        return []
    return [
        "no name server is configured, so clients cannot find this broker; "
        "use -n host:port, namesrvAddr, or the variable NAMESRV_ADDR"
    ]
