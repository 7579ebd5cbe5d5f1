"""AdminCommand: what a command takes, asks and prints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kourou.admin.session import Admin
from kourou.cli.admin.options import Option, ParsedArgs
from kourou.cli.admin.screen import Screen


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a command: what was given, and whom to ask."""

    args: ParsedArgs
    admin: Admin
    screen: Screen

    @property
    def is_v4(self) -> bool:
        """Whether it is to behave as RocketMQ 4.9's command."""
        return self.screen.is_v4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCommand:
    """One command. `ask` or `stream` gets data; `show` prints it as Apache does; `--json` prints the data."""

    name: str
    about: str
    example: str
    """A command line that can be pasted, without `mqadmin`."""
    options: tuple[Option, ...] = ()
    ask: Callable[[Call], Awaitable[Any]] | None = None
    """Returns everything at once."""
    stream: Callable[[Call], AsyncIterator[Any]] | None = None
    """Yields one result after the other; each is shown when it comes."""
    show: Callable[[Any, Screen], None]
    aliases: tuple[str, ...] = ()
    """Older and mistaken names; case never matters."""
    question: Callable[[ParsedArgs], str | None] | None = None
    """Of a command that destroys something: what is asked before; None if these options destroy nothing."""
    interval_s: Callable[[ParsedArgs], float | None] | None = None
    """After how many seconds it is repeated; None: it is not."""
    needs_cluster: bool = True
    """Whether it asks anybody at all."""
    changes_as_it_prints: bool = False
    """Whether a closed output, as by `| head`, ends it before all is done; exit code 1 then."""
    is_only_kourou: bool = False
    """Not a command of Apache's."""


@dataclass(frozen=True, slots=True)
class MissingCommand:
    """A command of a part that Kourou does not have."""

    name: str
    about: str
    part: str
    """Which part: ends the sentence `mqadmin NAME needs …`."""
    aliases: tuple[str, ...] = ()


def interval_of(name: str, default: float | None = None) -> Callable[[ParsedArgs], float | None]:
    """The seconds between rounds by an option."""

    def interval_s(args: ParsedArgs) -> float | None:
        return float(args.number(name)) if name in args else default

    return interval_s
