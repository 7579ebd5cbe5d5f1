"""Acceptor: listens on one port with sockets of its own, and passes on each socket that is accepted.

For servers that look at a connection before it gets a transport, or never give it one. Accepting pauses while
the system is short of something that may come back.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

_AT_ONCE: Final = 100
_PAUSE_S: Final = 1.0
# Accepting fails for want of something that may come back.
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """A port. `accepted` gets each socket, non-blocking; `short` is called when accepting pauses, `failed`
    when it ended with another error."""

    def __init__(
        self,
        *,
        accepted: Callable[[socket.socket], None],
        short: Callable[[OSError], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._accepted = accepted
        self._short = short
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self.port = 0

    async def start(self, host: str, port: int, backlog: int) -> None:
        """Listen on every address of `host`; OSError. Port 0 picks one, the same for all addresses."""
        infos = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, *_, name in infos:
            listening = socket.create_server(
                (name[0], self.port or port), family=socket.AddressFamily(family), backlog=backlog
            )
            listening.setblocking(False)
            self._sockets.append(listening)
            self.port = listening.getsockname()[1]
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def stop(self) -> None:
        """Accept no more."""
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            accepted.setblocking(False)
            self._accepted(accepted)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        if error.errno not in _SHORTAGES:
            self._failed(error)
            return
        self._short(error)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(_PAUSE_S, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._accept, listening)
