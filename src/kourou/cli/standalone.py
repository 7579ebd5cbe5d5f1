"""`kourou standalone` as a command: log, process, and the line that reports readiness."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.cli.serving import (
    ServerOptions,
    http_lines,
    log_config,
    log_place,
    log_start,
    logged_failure,
    run_folder,
    show_notes,
)
from kourou.config.home import data_home
from kourou.logs import LogConfig, LogLevel, logging_to
from kourou.standalone.accounts import SERVER_FILE, open_accounts
from kourou.standalone.options import StandaloneOptions
from kourou.store.disk.store_lock import StoreLock

if TYPE_CHECKING:
    from kourou.client.core.settings import ClientOptions
    from kourou.console.server import ConsoleServer
    from kourou.console.settings import ConsoleSettings
    from kourou.standalone.accounts import StandaloneAccounts
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


def run_standalone(
    options: StandaloneOptions, log: StandaloneLog, *, console_port: int | None = None, auth: bool = False
) -> None:
    """Run name server and brokers, and the console if it has a port, until a signal stops them. `auth`: with
    access control, whose accounts are made at the first start."""
    options.check()
    if options.failover:
        from kourou.standalone.etcd_process import etcd_program

        etcd_program()  # before anything is made
    if options.grpc_port is not None:
        from kourou.standalone.grpc import check_grpc

        check_grpc()
    console = None if console_port is None else _console_settings(options, console_port, accounts=auth)
    options.make_folder()
    # First, so that nothing is written into the log of servers that are already running there.
    for replica in options.replicas:
        StoreLock.check_free(options.store_of(replica))
    conf = options.store / "conf"
    if auth:
        options = replace(options, accounts=open_accounts(conf))
    default = options.log_folder / f"{COMPONENT}.log"
    config = log_config(default, ServerOptions(log_file=log.file, log_level=log.level))
    with logging_to(config), logged_failure(COMPONENT):
        log_start(COMPONENT)
        if not auth and (conf / SERVER_FILE).exists():
            _log.warning("access control is off: these brokers had it; start with --auth to have it again")
        for unserved in options.unserved_stores:
            _log.warning("%s is not served: --brokers %d is fewer than before", unserved, options.brokers)
        _serve(options, config, console)


def _console_settings(options: StandaloneOptions, port: int, *, accounts: bool) -> ConsoleSettings:
    from kourou.cli.console import console_settings

    return console_settings(
        options.log_folder,
        host=options.host,
        port=port,
        accounts=accounts,
        port_option="--console-port",
    )


def _serve(options: StandaloneOptions, log: LogConfig, console: ConsoleSettings | None) -> None:
    # Imported late: rejecting an option needs no event loop.
    from kourou.cli.service import STORE_STOP, Service, run_server

    async def started(server: _WithConsole) -> None:
        servers = server.servers
        show_notes(servers.notes)
        lines = [
            ready_line(servers, options),
            *grpc_lines(servers.grpc_address, servers.grpc_tls_words),
            *account_lines(options),
            *server.console_lines,
            log_place(log),
            *servers.kernel_lines,
        ]
        print(*lines, http_lines(servers.probe_address, servers.probe_address), sep="\n", end="", flush=True)
        warning = await servers.address_warning()
        if warning is not None:
            _log.warning("%s", warning)

    run_server(
        Service(
            lambda: _WithConsole(_server(options), console, options.accounts),
            COMPONENT,
            started,
            run_folder(os.environ),
            STORE_STOP,
            shown_name="Kourou",
        )
    )


class _WithConsole:
    """Name server and brokers, and a console for them in this process."""

    def __init__(
        self,
        servers: Standalone | Supervisor,
        settings: ConsoleSettings | None,
        accounts: StandaloneAccounts | None,
    ) -> None:
        self.servers = servers
        self._accounts = accounts
        self._settings = settings
        self._console: ConsoleServer | None = None

    @property
    def address(self) -> str:
        """The name server as clients write it."""
        return self.servers.address

    @property
    def console_lines(self) -> list[str]:
        """A line with the console's address, if there is one."""
        return [] if self._console is None else [f"console: {self._console.url}"]

    async def start(self) -> None:
        """Start the servers, then the console."""
        await self.servers.start()
        if self._settings is None:
            return
        from kourou.client.core.credentials import Credentials
        from kourou.console.server import ConsoleServer

        servers = self.servers
        client: ClientOptions = {"namesrv": servers.address}
        if self._accounts is not None:
            # For the charts, which only administrators see then: people act with their own accounts.
            inner = self._accounts.inner
            client["credentials"] = Credentials(inner.access_key, inner.secret_key)
        console = ConsoleServer(self._settings, client, servers.metrics_routes())
        try:
            await console.start()
        except BaseException:
            await self.servers.stop()
            raise
        self._console = console

    async def stop(self, timeout_ms: int) -> None:
        """Stop the console first: it is a client of the servers."""
        try:
            if self._console is not None:
                await self._console.stop()
        finally:
            await self.servers.stop(timeout_ms)

    async def wait_failed(self) -> None:
        """Raise the error of a server. A console that fails is logged by itself: messages go on."""
        await self.servers.wait_failed()


def _server(options: StandaloneOptions) -> Standalone | Supervisor:
    if options.is_single:
        from kourou.standalone.one_process import Standalone

        return Standalone(options)
    from kourou.standalone.supervisor import Supervisor

    return Supervisor(options)


def account_lines(options: StandaloneOptions) -> list[str]:
    """The lines about the administrator. The keys are shown once, when they are made."""
    accounts = options.accounts
    if accounts is None:
        return []
    use = f"mqadmin --acl {accounts.tools_file}"
    if not accounts.is_new:
        return [f"access control is on; the administrator's keys: {use}"]
    administrator = accounts.administrator
    return [
        f"access control is on; administrator: accessKey={administrator.access_key} "
        f"secretKey={administrator.secret_key}; shown this once, kept for {use}"
    ]


def grpc_lines(address: str | None, tls_words: str) -> list[str]:
    """A line with the address of clients of RocketMQ 5, and how they may connect."""
    if address is None:
        return []
    return [f"gRPC: {address}, {tls_words}"]


def ready_line(server: Standalone | Supervisor, options: StandaloneOptions) -> str:
    """The addresses that clients need, in one line; with slaves, also the role of each broker."""
    brokers = ", ".join(server.broker_texts)
    noun = "broker" if options.is_single else "brokers"
    return f"Kourou is ready: namesrvAddr={server.address} ({noun} {brokers}; store {options.store})"
