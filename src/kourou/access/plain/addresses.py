"""Patterns of IP addresses, as the white lists of plain_acl.yml have them.

    (blank)                             no address
    *, *.*.*.*, *:*:*:*:*:*:*:*         every address
    10.0.0.7 or 2001:db8::7             one address
    10.0.0.7,10.0.0.8                   several, neither with blanks nor with wildcards
    10.0.0.{7,8} or 2001:db8::{7,8}     several that differ in the last part
    10.0.1-9.* or 2001:db8::1-f:*       a range: `*` or `low-high` in one part

What stands behind the first wildcard of a range is ignored. An IPv4 range has four parts, a wildcard in the
second, third or fourth. An IPv6 range has `*` only as its last part, and `low-high` only last or before
that. `::` right before the wildcard is one group of zeros, not several: 2::* means 2:0:*. That is as RocketMQ
matches; patterns that it accepts although they match no address, or fail at every request, are refused here.
There is no CIDR notation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Protocol

from kourou.errors import ConfigError

_EVERY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_OCTET: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_HEX_GROUP: Final = re.compile(r"[0-9A-Fa-f]{1,4}", re.ASCII)
_V4_PARTS: Final = 4
_V6_PARTS: Final = 8

Parts = tuple[int, ...]
"""An address: four octets, or eight groups."""


class AddressPattern(Protocol):
    """Addresses that a pattern means."""

    def matches(self, address: Parts) -> bool:
        """Whether it is one of them."""
        ...


@dataclass(frozen=True, slots=True)
class _Every:
    """Every address."""

    def matches(self, address: Parts) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _Several:
    """These addresses; none is possible."""

    addresses: frozenset[Parts]

    def matches(self, address: Parts) -> bool:
        return address in self.addresses


@dataclass(frozen=True, slots=True)
class _Range:
    """Addresses of one length that start with `head`, with the part after it in a range."""

    length: int
    head: Parts
    low: int
    high: int

    def matches(self, address: Parts) -> bool:
        index = len(self.head)
        return (
            len(address) == self.length
            and address[:index] == self.head
            and self.low <= address[index] <= self.high
        )


def parse_pattern(text: str) -> AddressPattern:
    """The pattern of a white list. ConfigError, naming the pattern, if it is none.

    >>> parse_pattern("10.0.1-9.*").matches(parse_address("10.0.3.77"))
    True
    """
    if not text.strip():
        return _Several(frozenset())
    if text in _EVERY:
        return _Every()
    if text.endswith("}"):
        return _Several(frozenset(_plain(one, text) for one in _braced(text)))
    if "," in text:
        return _Several(frozenset(_plain(one, text) for one in text.split(",") if one))
    if "*" in text or "-" in text:
        return _v6_range(text) if ":" in text else _v4_range(text)
    return _Several(frozenset({_plain(text, text)}))


@lru_cache(maxsize=4_096)
def parse_address(text: str) -> Parts:
    """A peer's address; empty, matched by wildcards for all only, if the text is none.

    An IPv4 address in IPv6 (::ffff:10.0.0.1) is the IPv4 address; the zone of a link is left out.
    Cached, since each request asks.
    """
    try:
        return _parts(ip_address(text.strip("[]").partition("%")[0]))
    except ValueError:
        return ()


def _parts(address: IPv4Address | IPv6Address) -> Parts:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(packed[i] << 8 | packed[i + 1] for i in range(0, len(packed), 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def _plain(address: str, pattern: str) -> Parts:
    try:
        return _parts(ip_address(address))
    except ValueError:
        raise _problem(pattern, f"{address!r} is not an IP address") from None


def _braced(text: str) -> list[str]:
    """The addresses of `head.{a,b}`."""
    separator, enough = (":", 1) if ":" in text else (".", _V4_PARTS)
    parts = [part for part in text.split(separator) if part]
    if len(parts) < enough or not parts[-1].startswith("{"):
        raise _problem(text, "only the last part can be a list, as in 10.0.0.{1,2} or 2001:db8::{1,2}")
    head = text[: text.index("{")]
    return [head + last for last in parts[-1][1:-1].split(",") if last]


def _v4_range(text: str) -> _Range:
    parts = [part.strip() for part in text.split(".") if part]
    if len(parts) != _V4_PARTS:
        raise _problem(text, "an address with a wildcard has four parts, as in 10.0.*.*")
    for index in range(1, _V4_PARTS):
        wildcard = _wildcard(parts[index], text, is_v6=False)
        if wildcard is not None:
            head = tuple(_octet(part, text) for part in parts[:index])
            return _Range(_V4_PARTS, head, *wildcard)
    raise _problem(text, "a wildcard is possible in the second, third and fourth part only")


def _v6_range(text: str) -> _Range:
    _check_v6_range(text)
    parts = [part.strip() for part in text.split(":") if part]
    for part in parts[1:]:
        wildcard = _wildcard(part, text, is_v6=True)
        if wildcard is not None:
            return _Range(_V6_PARTS, _v6_head(text), *wildcard)
    raise _problem(text, "a wildcard is not possible in the first part")


def _check_v6_range(text: str) -> None:
    """`*` only at the end; the range in the last part, or in the one before a last `*`."""
    has_star = "*" in text
    if has_star and text.index("*") != len(text) - 1:
        raise _problem(text, "'*' is possible only as the last part of an IPv6 address")
    before_range = text[: text.rindex(":")] if has_star else text
    if "-" in text and text.index("-") <= before_range.rfind(":"):
        raise _problem(
            text, "a range is possible only in the last part of an IPv6 address, or before a last '*'"
        )


def _v6_head(text: str) -> Parts:
    """The groups before the first wildcard, with `::` filled up to where it stands."""
    has_both = "*" in text and "-" in text
    head = text.rsplit(":", 2 if has_both else 1)[0]
    wanted = _V6_PARTS - (2 if has_both else 1)
    missing = wanted - head.count(":")
    if missing > 0:
        head = head.replace("::", ":" * (missing + 1))
    groups = head.split(":")
    if len(groups) > wanted:
        raise _problem(text, f"an IPv6 address has {_V6_PARTS} groups")
    return tuple(_group(group, text) for group in groups)


def _wildcard(part: str, pattern: str, *, is_v6: bool) -> tuple[int, int] | None:
    """The lowest and highest number of a part that is a wildcard; None if it is none."""
    if part == "*":
        return 0, 0xFFFF if is_v6 else 0xFF
    if "-" not in part:
        return None
    number = _group if is_v6 else _octet
    low_text, _, high_text = part.partition("-")
    low, high = number(low_text, pattern), number(high_text, pattern)
    if low > high:
        raise _problem(pattern, f"the range {part} ends before it begins")
    return low, high


def _octet(part: str, pattern: str) -> int:
    if not _OCTET.fullmatch(part) or int(part) > 0xFF:
        raise _problem(pattern, f"{part!r} is not a number from 0 to 255")
    return int(part)


def _group(part: str, pattern: str) -> int:
    if part and not _HEX_GROUP.fullmatch(part):
        raise _problem(pattern, f"{part!r} is not a group of an IPv6 address")
    return int(part or "0", 16)


def _problem(pattern: str, why: str) -> ConfigError:
    return ConfigError(f"address pattern {pattern!r}: {why}")
