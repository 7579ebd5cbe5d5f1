"""Networks: lists of IP addresses and networks, as in `10.0.0.7,10.1.0.0/16`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self

_SOURCE_BYTES: Final = 8
"""Of an IPv6 address: the network of a host."""


@dataclass(frozen=True, slots=True)
class Networks:
    """IP addresses and networks, of both versions. An empty list has no address in it."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Those of a list, separated by `,` or `;`. ValueError for what is neither.

        >>> "10.1.2.3" in Networks.parse("10.0.0.7,10.1.0.0/16")
        True
        """
        parts = (part.strip() for part in text.replace(";", ",").split(","))
        return cls(tuple(ip_network(part, strict=False) for part in parts if part))

    def __contains__(self, address: object) -> bool:
        """Whether an address is in one of the networks; text that is no address is in none."""
        try:
            found = ip_address(str(address).partition("%")[0])
        except ValueError:
            return False
        # A socket for both versions shows IPv4 peers as IPv6.
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self.networks)


def networks(text: str) -> str | None:
    """The check of a key: addresses and networks, separated by `,`."""
    try:
        Networks.parse(text)
    except ValueError:
        return "IP addresses or networks, several separated by , as in 10.0.0.7,10.1.0.0/16"
    return None


@lru_cache(maxsize=1_024)
def source_of(address: str) -> str:
    """What is counted as one address, where peers are limited: of IPv6 the network of a host.

    >>> source_of("2001:db8:0:7::1"), source_of("::ffff:10.0.0.1"), source_of("10.0.0.1")
    ('2001:db8:0:7::/64', '10.0.0.1', '10.0.0.1')
    """
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(parsed.packed[:_SOURCE_BYTES].ljust(16, bytes(1)))}/{8 * _SOURCE_BYTES}"
