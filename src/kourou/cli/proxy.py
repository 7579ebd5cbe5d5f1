"""The proxy as a command: what `mqproxy` and `kourou proxy` share.

Reads configuration and environment, sets up logging, serves. Not here: parsing options.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from kourou.config.option_names import naming_options
from kourou.config.proxy import ProxyConfig
from kourou.config.proxy_loader import load_proxy_config
from kourou.errors import ConfigError
from kourou.logs import LogConfig, logging_to

if TYPE_CHECKING:
    from kourou.proxy.assembly import HostBroker, Proxy
    from kourou.transport.http_server import HttpServer
    from kourou.transport.settings import ServerTlsConfig

COMPONENT: Final = "proxy"
DEFAULT_PORT: Final = 8081
_MISSING: Final = "a proxy needs the extra `grpc`: pip install 'kourou[grpc]'"


def check_installed() -> None:
    """ConfigError: the packages that a proxy needs are not installed."""
    try:
        import_module("google.protobuf")
    except ImportError as error:
        raise ConfigError(_MISSING) from error


def run_proxy(options: ServerOptions) -> None:
    """Run a proxy until a signal stops it, or print its configuration."""
    config, notes = load_proxy_config(
        options.config_file, options.overrides, environ=os.environ, option_names=options.typed
    )
    show_notes(notes)
    if printed_config(config, options):
        return
    check_installed()
    log = log_config(default_log(config), options)
    with (
        logging_to(log),
        logged_failure(COMPONENT),
        naming_options(options.option_names, options.typed),
    ):
        log_start(COMPONENT, notes)
        _serve(config, log)


def default_log(config: ProxyConfig) -> Path:
    """The log file in the home folder."""
    name = log_name(COMPONENT, config.grpc_server_port, DEFAULT_PORT)
    return Path(config.rocketmq_home or ".") / "logs" / name


def _serve(config: ProxyConfig, log: LogConfig) -> None:
    # Imported late: printing or rejecting a configuration needs no event loop.
    from kourou.cli.service import Service, run_server

    async def started(server: ConfiguredProxy) -> None:
        # Scripts look for the words of Apache's proxy.
        print(
            f"rocketmq-proxy startup successfully. {proxy_line(server)}\n{log_place(log)}\n"
            f"{http_lines(server.probe_address, server.probe_address)}",
            end="",
            flush=True,
        )

    run_server(
        Service(
            lambda: ConfiguredProxy(config),
            COMPONENT,
            started,
            run_folder(os.environ),
            shown_name="The proxy",
        )
    )


class ConfiguredProxy:
    """A proxy by its configuration, with its health checks and metrics. `broker` runs in the same process;
    `namesrv_addr` and `broker_tls` count where the configuration has none."""

    def __init__(
        self,
        config: ProxyConfig,
        *,
        broker: HostBroker | None = None,
        namesrv_addr: str | None = None,
        broker_tls: ServerTlsConfig | None = None,
    ) -> None:
        from kourou.proxy.assembly import Proxy
        from kourou.proxy.from_config import TLS_KEYS, proxy_settings

        self._config = config
        # Messages name the keys that were read.
        uses_broker_files = (
            config.tls_cert_path is None and broker_tls is not None and broker_tls.cert_path is not None
        )
        self._tls_keys = {} if uses_broker_files else TLS_KEYS
        self._proxy: Proxy = Proxy(proxy_settings(config, namesrv_addr, broker_tls), broker=broker)
        self._http: HttpServer | None = None

    @property
    def address(self) -> str:
        """`host:port` it listens on."""
        return self._proxy.address

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._http is None else self._http.address

    @property
    def tls_words(self) -> str:
        """How clients may connect."""
        return self._proxy.tls_words

    async def start(self) -> None:
        """Start the listener of health checks, then the proxy."""
        from kourou.proxy.from_config import start_proxy_http

        self._http = await start_proxy_http(self._config, self._proxy)
        try:
            with naming_options(self._tls_keys, self._tls_keys):
                await self._proxy.start()
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, timeout_ms: int) -> None:
        """Stop both."""
        try:
            await self._proxy.stop(timeout_ms)
        finally:
            if self._http is not None:
                await self._http.stop()

    async def wait_failed(self) -> None:
        """Raise what a part of the proxy died of."""
        await self._proxy.wait_failed()


def proxy_line(proxy: ConfiguredProxy) -> str:
    """Where gRPC clients connect."""
    return f"gRPC: {proxy.address}, {proxy.tls_words}"
