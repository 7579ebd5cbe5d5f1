"""Checks of text with a syntax of its own: addresses, hours, delays, folders, names.

Each takes a value and returns what it must be, or None if it is valid.
"""

from __future__ import annotations

import re
from typing import Final

_ADDRESS: Final = re.compile(r"(\[[^\[\];,]+\]|[^\s:;,]+):(\d{1,5})", re.ASCII)
_NAME: Final = re.compile(r"\S{1,127}")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HOUR: Final = re.compile(r"([01]?\d|2[0-3])", re.ASCII)
_DELAY: Final = re.compile(r"\d+[smhd]", re.ASCII | re.IGNORECASE)


def split_addresses(text: str) -> list[str]:
    """The addresses of a list, separated by `;` or `,`."""
    return [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]


def addresses(text: str) -> str | None:
    """`host:port`, several separated by `;`; the empty text is an empty list."""
    if all(_is_address(address) for address in split_addresses(text)):
        return None
    return "host:port, several separated by ; as in 127.0.0.1:9876;192.168.0.1:9876"


def _is_address(text: str) -> bool:
    match = _ADDRESS.fullmatch(text)
    return match is not None and int(match[2]) <= 65_535


def split_labels(text: str) -> list[tuple[str, str]]:
    """Names and values of `name:value`, separated by `,`.

    >>> split_labels("zone:a, rack:7")
    [('zone', 'a'), ('rack', '7')]
    """
    pairs = [part.strip().partition(":") for part in text.split(",") if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def endpoints(text: str) -> str | None:
    """Addresses, each alone or as a URL."""
    parts = split_addresses(text)
    schemes = {part.partition("://")[0] for part in parts if "://" in part}
    if (
        len(schemes) <= 1
        and schemes <= {"http", "https"}
        and all(_is_address(part.rpartition("://")[2]) for part in parts)
    ):
        return None
    return "host:port or https://host:port, several separated by ; as in 10.0.0.1:2379;10.0.0.2:2379"


def key_prefix(text: str) -> str | None:
    """What keys in etcd begin with."""
    return None if text.startswith("/") and text.isprintable() and " " not in text else "a path as in /kourou"


def labels(text: str) -> str | None:
    """`name:value`, several separated by `,`."""
    pairs = split_labels(text)
    if all(_LABEL.fullmatch(name) and value for name, value in pairs):
        return None
    return "name:value, several separated by , as in zone:a,rack:7"


def name(text: str) -> str | None:
    """The name of a broker or cluster; each has a topic of that name."""
    fits = _NAME.fullmatch(text) and text.isprintable()
    return None if fits else "1 to 127 characters without blanks"


def hours(text: str) -> str | None:
    """Hours of the day, separated by `;`."""
    return (
        None
        if text and all(map(_HOUR.fullmatch, text.split(";")))
        else "hours from 0 to 23, as in 04 or 04;16"
    )


def delay_levels(text: str) -> str | None:
    """Delays separated by spaces, such as `1s 5s 10s`."""
    words = text.split()
    return (
        None if words and all(map(_DELAY.fullmatch, words)) else "numbers with s, m, h or d, as in 1s 5s 1m"
    )


def paths(text: str) -> str | None:
    """Folders separated by commas; none of them empty."""
    return (
        None
        if all(part.strip() for part in text.split(","))
        else "one folder, or several separated by commas"
    )
