"""Listener: accepts connections on one port: plaintext, TLS, or both, distinguished by the first byte.

Without a TLS context the loop's own server does it. With one, each accepted socket waits for its first byte,
which is peeked (tls_socket.py). The socket becomes a connection only then.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from kourou.errors import ConfigError
from kourou.transport.acceptor import Acceptor
from kourou.transport.addresses import format_address
from kourou.transport.settings import RemotingServerConfig, TlsMode
from kourou.transport.tasks import TaskOwner
from kourou.transport.tls import describe_handshake, follow_server, plaintext_warning
from kourou.transport.tls_files import FollowedContext
from kourou.transport.tls_socket import opens_tls

_log = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S = 10.0
# Accepting fails for lack of a resource that may become available again.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

ProtocolFactory = Callable[[], asyncio.Protocol]

_ACCEPT_ITERATIONS = 3


class Listener:
    """A bound port. `start` binds and accepts; `stop` closes it and drops waiting sockets."""

    def __init__(
        self,
        config: RemotingServerConfig,
        factory: ProtocolFactory,
        tasks: TaskOwner,
        *,
        port_key: str = "listenPort",
    ) -> None:
        self._config = config
        self._port_key = port_key
        self._factory = factory
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._tls: FollowedContext | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._acceptor = Acceptor(accepted=self._accepted, short=self._short, failed=tasks.fail)
        self._undecided: dict[socket.socket, float] = {}
        self._is_stopped = False
        self.port = 0

    async def start(self) -> None:
        """Bind and accept. ConfigError for a taken port or an address that is not ours."""
        config = self._config
        self._tls = follow_server(config.tls, f"port {config.port}")
        try:
            if self._tls.context is None:
                self._server = await self._loop.create_server(
                    self._factory, config.host or None, config.port, backlog=config.backlog
                )
                self.port = self._server.sockets[0].getsockname()[1]
            else:
                await self._acceptor.start(config.host, config.port, config.backlog)
                self.port = self._acceptor.port
        except OSError as error:
            raise ConfigError(
                bind_problem(config.host, config.port, error, port_key=self._port_key)
            ) from error
        if self._tls.context is not None:
            self._look_later()
        if warning := plaintext_warning(config.tls, self.port):
            _log.warning("%s", warning)

    async def stop(self) -> None:
        """Stop accepting. Existing connections are not affected."""
        self._is_stopped = True
        if self._server is not None:
            # What was accepted in this moment becomes a connection within the next iterations of the loop.
            # After `close`, asyncio would drop it without closing its socket.
            for listening in self._server.sockets:
                self._loop.remove_reader(listening.fileno())
            for _ in range(_ACCEPT_ITERATIONS):
                await asyncio.sleep(0)
            self._server.close()
        self._acceptor.stop()
        if self._look_timer is not None:
            self._look_timer.cancel()
        for waiting in list(self._undecided):
            self._drop(waiting)

    def sweep(self, now: float) -> None:
        """Drop sockets that have not sent their first byte within the idle time."""
        idle_s = self._config.limits.idle_timeout_ms / 1000
        for waiting, since in list(self._undecided.items()):
            if now - since > idle_s:
                self._drop(waiting)

    # -- TLS or plaintext ------------------------------------------------------------------------

    def _accepted(self, accepted: socket.socket) -> None:
        if len(self._undecided) >= self._config.max_connections:
            accepted.close()
            return
        self._undecided[accepted] = self._loop.time()
        self._loop.add_reader(accepted.fileno(), self._decide, accepted)

    @staticmethod
    def _short(error: OSError) -> None:
        _log.error("cannot accept connections for the moment: %s", error.strerror)

    def _decide(self, accepted: socket.socket) -> None:
        try:
            is_tls = opens_tls(accepted)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(accepted)
            return
        del self._undecided[accepted]
        self._loop.remove_reader(accepted.fileno())
        if not is_tls and self._config.tls.mode is TlsMode.ENFORCING:
            _log.warning(
                "closing %s: it does not speak TLS, which port %d requires (%s=enforcing)",
                _peer_of(accepted),
                self.port,
                self._config.tls.mode_key,
            )
            accepted.close()
            return
        self._tasks.start(self._take(accepted, is_tls), "accept")

    async def _take(self, accepted: socket.socket, is_tls: bool) -> None:
        peer = _peer_of(accepted)
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                accepted,
                ssl=self._tls.context if is_tls and self._tls is not None else None,
                ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S if is_tls else None,
            )
        except (OSError, EOFError) as error:  # SSLError is an OSError
            _log.warning("TLS handshake with %s failed: %s", peer, describe_handshake(error))
            accepted.close()

    # -- TLS files -------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._tls is not None and self._tls.has_files:
            self._look_timer = self._loop.call_later(self._config.tls.look_every_s, self._look)

    def _look(self) -> None:
        # A task each time: a server that stops waits until none runs.
        self._tasks.start(self._look_at_files(), "tls-files")

    async def _look_at_files(self) -> None:
        if self._tls is not None:
            await asyncio.to_thread(self._tls.look)
        if not self._is_stopped:
            self._look_later()

    def _drop(self, waiting: socket.socket) -> None:
        del self._undecided[waiting]
        self._loop.remove_reader(waiting.fileno())
        waiting.close()


def _peer_of(accepted: socket.socket) -> str:
    try:
        return format_address(accepted.getpeername())
    except OSError:
        return "unknown"


def bind_problem(
    host: str, port: int, error: OSError, *, port_key: str = "listenPort", host_key: str = "bindAddress"
) -> str:
    """Why `host:port` cannot be listened on, with the keys to change."""
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: the port is taken; stop what uses it or choose another {port_key}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {where}: this machine has no such address; check {host_key}"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: ports below 1024 need special rights; choose another {port_key}"
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {where}: the name cannot be resolved ({error.strerror}); check {host_key}"
    return f"cannot listen on {where}: {error.strerror or error}"
