"""The machine: its name, its address, its memory."""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::", "*"})
# Documentation addresses: nothing is sent, the operating system only chooses the route.
_FAR_AWAY: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))

# A container's limit, by the second version of cgroups and by the first.
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def host_name() -> str:
    """The machine's name; a fixed one where it has none."""
    return socket.gethostname() or "DEFAULT_BROKER"


def advertised_address(bind_address: str) -> str:
    """The address to advertise, for a server that listens on `bind_address`.

    A server that listens on a single address cannot be reached at another.
    """
    return local_address() if is_wildcard(bind_address) else bind_address


def is_wildcard(bind_address: str) -> bool:
    """Whether a server there listens on every address of the machine."""
    return bind_address in _WILDCARDS


def is_loopback(host: str) -> bool:
    """Whether `host` is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def local_address() -> str:
    """The address that traffic to other machines leaves from; loopback where there is none."""
    for family, target in _FAR_AWAY:
        address = _outgoing(family, target)
        if address is not None:
            return address
    return LOOPBACK


def _outgoing(family: socket.AddressFamily, target: str) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


@functools.cache
def memory_bytes() -> int:
    """The memory of the machine, or of the container if that has less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        try:
            found.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(found)
