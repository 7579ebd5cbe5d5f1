"""Ports of the shop's processes: a block of free ones that stay the same over restarts."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_LOWEST: Final = 15_000
_ATTEMPTS: Final = 200


def free_block(size: int) -> int:
    """The first of `size` consecutive ports that are free. They are below those that the system gives to
    outgoing connections: a process that is restarted finds its port free."""
    for _ in range(_ATTEMPTS):
        first = random.randrange(_LOWEST, _first_ephemeral() - size)
        if are_free(range(first, first + size)):
            return first
    raise OSError(f"there are no {size} consecutive free ports between {_LOWEST} and {_first_ephemeral()}")


def are_free(ports: Iterable[int]) -> bool:
    """Whether a server could listen on every one of them."""
    with ExitStack() as stack:
        for port in ports:
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                return False
    return True


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 32_768
