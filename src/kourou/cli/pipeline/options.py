"""Options that several commands of `kourou pipeline` have: name servers, master, sizes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import click

from kourou.cli.option_types import Command
from kourou.cli.pairs import parse_pairs
from kourou.cli.problems import UsageError
from kourou.errors import NameServerNotGivenError

namesrv_option = click.option(
    "namesrv",
    "-n",
    "--namesrvAddr",
    metavar="LIST",
    help="Name servers, host:port;host:port; default NAMESRV_ADDR.",
)
"""The name servers, if they are given: `namesrv: str | None`."""
master_option = click.option(
    "--master", default="local[*]", metavar="URL", help="Spark master: local[4], spark://host:7077."
)
"""Where Spark runs: `master: str`."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_SIZE_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def pairs_option(of: str) -> Callable[[Command], Command]:
    """Options of Spark's source or sink: `options: tuple[str, ...]`."""
    return click.option(
        "options",
        "-o",
        "--option",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"An option of the {of}, ${{NAME}} is taken from the environment; may be repeated.",
    )


def parse_options(texts: Iterable[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The pairs of `pairs_option`. `${NAME}` in a value is replaced from the environment, as in a pipeline's
    file, so that a secret need not be on the command line, which other users can read. UsageError."""
    return {key: _replaced(key, value, environ) for key, value in parse_pairs("--option", texts).items()}


def _replaced(key: str, value: str, environ: Mapping[str, str]) -> str:
    def put(match: re.Match[str]) -> str:
        found = environ.get(match[1])
        if not found:
            raise UsageError(f"--option {key}: the environment variable {match[1]} is not set")
        return found

    return _VARIABLE.sub(put, value)


def resolved_namesrv(namesrv: str | None) -> str:
    """The name servers of `namesrv_option` or NAMESRV_ADDR; empty if there are none."""
    return namesrv or os.environ.get("NAMESRV_ADDR", "")


def namesrv_missing() -> NameServerNotGivenError:
    """The error for missing name servers."""
    return NameServerNotGivenError("no name server given: use -n host:9876, or set NAMESRV_ADDR")


def parse_size_bytes(option: str, text: str) -> int:
    """`4096`, `64k`, `128m`, `1g`. UsageError if it is not a size, or 0."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
    if match is None or not int(match[1]):
        raise UsageError(f"{option} {text}: must be a size such as 64m or 1g")
    return int(match[1]) * _SIZE_BYTES[match[2]]
