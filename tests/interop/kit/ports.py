"""Free loopback ports for servers under test.

Ports are taken from below the range that the kernel gives to outgoing connections, so that no client socket
of a neighbour takes one between the look and the bind.
"""

from __future__ import annotations

import random
import socket
from typing import Final

_RANGE: Final = range(18_000, 31_000)
_ATTEMPTS: Final = 200
# Hypothesis seeds the generator of the module: suites side by side would choose the same ports.
_random: Final = random.SystemRandom()


def free_port() -> int:
    """A port on which a server can listen."""
    return _free_port_with(())


def free_broker_port() -> int:
    """A listenPort for a broker, which listens on listenPort - 2 and listenPort + 1 too."""
    return _free_port_with((-2, 1))


def _free_port_with(neighbours: tuple[int, ...]) -> int:
    for _ in range(_ATTEMPTS):
        port = _random.choice(_RANGE)
        if all(_is_free(port + step) for step in (0, *neighbours)):
            return port
    raise RuntimeError(f"no free port in [{_RANGE.start}, {_RANGE.stop}) after {_ATTEMPTS} attempts")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
