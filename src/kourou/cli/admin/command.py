"""AdminCommand: options, request and output of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kourou.admin.session import Admin
from kourou.cli.admin.options import Option, ParsedArgs
from kourou.cli.admin.screen import Screen


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a command: its arguments and the session."""

    args: ParsedArgs
    admin: Admin
    screen: Screen

    @property
    def is_v4(self) -> bool:
        """Whether to behave like the command of RocketMQ 4.9."""
        return self.screen.is_v4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCommand:
    """One command. `ask` or `stream` gets data; `show` prints it as Apache does; `--json` prints the data."""

    name: str
    about: str
    example: str
    """An example that can be pasted, without `mqadmin`."""
    options: tuple[Option, ...] = ()
    ask: Callable[[Call], Awaitable[Any]] | None = None
    """Returns the whole result."""
    stream: Callable[[Call], AsyncIterator[Any]] | None = None
    """Yields results one at a time; each is shown at once."""
    show: Callable[[Any, Screen], None]
    aliases: tuple[str, ...] = ()
    """Old and misspelled names; case is ignored."""
    question: Callable[[ParsedArgs], str | None] | None = None
    """For destructive commands: the confirmation question; None if these options destroy nothing."""
    interval_s: Callable[[ParsedArgs], float | None] | None = None
    """Seconds between repetitions; None: run once."""
    needs_cluster: bool = True
    """Whether it connects to a cluster."""
    changes_as_it_prints: bool = False
    """Whether a closed output (`| head`) means that work was left undone; exit code 1 then."""
    is_only_kourou: bool = False
    """Not one of Apache's commands."""


@dataclass(frozen=True, slots=True)
class MissingCommand:
    """A command of a feature that Kourou does not have."""

    name: str
    about: str
    part: str
    """The feature, as in `mqadmin NAME needs …`."""
    aliases: tuple[str, ...] = ()


def interval_of(name: str, default: float | None = None) -> Callable[[ParsedArgs], float | None]:
    """Reads the seconds between rounds from an option."""

    def interval_s(args: ParsedArgs) -> float | None:
        return float(args.number(name)) if name in args else default

    return interval_s
