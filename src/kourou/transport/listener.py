"""Listener: accepts connections on one port: plaintext, TLS, or both, distinguished by the first byte.

Without a TLS context the loop's own server does it. With one, each accepted socket waits for its first byte,
which is peeked: 0x16 opens a TLS handshake and is never the start of a legal frame length. The socket becomes
a connection only then.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from kourou.errors import ConfigError
from kourou.transport.acceptor import Acceptor
from kourou.transport.addresses import format_address
from kourou.transport.settings import RemotingServerConfig, TlsMode
from kourou.transport.tasks import TaskOwner
from kourou.transport.tls import describe_handshake, server_context

_log = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16
_HANDSHAKE_TIMEOUT_S = 10.0
# Accepting fails for lack of a resource that may become available again.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

ProtocolFactory = Callable[[], asyncio.Protocol]

_ACCEPT_ITERATIONS = 3


class Listener:
    """A bound port. `start` binds and accepts; `stop` closes it and drops waiting sockets."""

    def __init__(self, config: RemotingServerConfig, factory: ProtocolFactory, tasks: TaskOwner) -> None:
        self._config = config
        self._factory = factory
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._context: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._acceptor = Acceptor(accepted=self._accepted, short=self._short, failed=tasks.fail)
        self._undecided: dict[socket.socket, float] = {}
        self.port = 0

    async def start(self) -> None:
        """Bind and accept. ConfigError for a taken port or an address that is not ours."""
        config = self._config
        self._context = server_context(config.tls)
        try:
            if self._context is None:
                self._server = await self._loop.create_server(
                    self._factory, config.host or None, config.port, backlog=config.backlog
                )
                self.port = self._server.sockets[0].getsockname()[1]
            else:
                await self._acceptor.start(config.host, config.port, config.backlog)
                self.port = self._acceptor.port
        except OSError as error:
            raise ConfigError(bind_problem(config.host, config.port, error)) from error

    async def stop(self) -> None:
        """Stop accepting. Existing connections are not affected."""
        if self._server is not None:
            # What was accepted in this moment becomes a connection within the next iterations of the loop.
            # After `close`, asyncio would drop it without closing its socket.
            for listening in self._server.sockets:
                self._loop.remove_reader(listening.fileno())
            for _ in range(_ACCEPT_ITERATIONS):
                await asyncio.sleep(0)
            self._server.close()
        self._acceptor.stop()
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
            first = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(accepted)
            return
        del self._undecided[accepted]
        self._loop.remove_reader(accepted.fileno())
        is_tls = first[0] == _TLS_HANDSHAKE
        if not is_tls and self._config.tls.mode is TlsMode.ENFORCING:
            _log.warning(
                "closing %s: it does not speak TLS and tls.server.mode is enforcing", _peer_of(accepted)
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
                ssl=self._context if is_tls else None,
                ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S if is_tls else None,
            )
        except (OSError, EOFError) as error:  # SSLError is an OSError
            _log.warning("TLS handshake with %s failed: %s", peer, describe_handshake(error))
            accepted.close()

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
