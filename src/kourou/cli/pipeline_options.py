"""Options that several commands of `kourou pipeline` have: name servers, master, times, sizes."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from kourou.errors import ConfigError

NamesrvOption = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrvAddr", metavar="LIST", help="Name servers, host:port;host:port; else NAMESRV_ADDR."
    ),
]
"""The name servers, if they are given."""
MasterOption = Annotated[
    str, typer.Option(metavar="URL", help="Spark's master: local[4], spark://host:7077.")
]
"""Where Spark runs."""
SourceOptions = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="KEY=VALUE", help="An option of the source; may be repeated."),
]
"""Options of the Spark source."""

_TIME_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_duration_ms(option: str, text: str) -> int:
    """`500ms`, `30s`, `5m`, `1h`, `7d`. ConfigError: it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip().lower())
    if match is None:
        raise ConfigError(f"{option} {text}: must be a time such as 30s, 5m, 1h or 7d")
    return round(float(match[1]) * _TIME_MS[match[2]])


def parse_size_bytes(option: str, text: str) -> int:
    """`4096`, `64k`, `128m`, `1g`. ConfigError: it is none, or nothing."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
    if match is None or not int(match[1]):
        raise ConfigError(f"{option} {text}: must be a size such as 64m or 1g")
    return int(match[1]) * _SIZE_BYTES[match[2]]
