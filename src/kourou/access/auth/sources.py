"""Source: the addresses that an entry of a policy is limited to, one or a network, of IPv4 or IPv6.

An IPv4 address in the form of IPv6 (`::ffff:10.0.0.1`) is that IPv4 address.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Self, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Source:
    """One address or network, as it was written."""

    text: str
    network: Network

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read an address, or a network such as `10.0.0.0/8`; None if it is neither.

        >>> Source.parse("10.1.2.3/8").contains(address_of("10.9.9.9"))
        True
        """
        text = text.strip()
        try:
            return cls(text, ipaddress.ip_network(text, strict=False))
        except ValueError:
            return None

    def __str__(self) -> str:
        return self.text

    def contains(self, address: Address) -> bool:
        """Whether an address is one of these."""
        return address in self.network


def address_of(text: str) -> Address | None:
    """The address of a peer; None if it has none, or none that is understood."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
