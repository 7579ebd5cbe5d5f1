"""All commands, by area. An area is imported when a command is looked for there: most need only a part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Final

from kourou.cli.admin.command import AdminCommand, MissingCommand

# In the order of the list. Module `topic_commands` has TOPIC_COMMANDS, and so on.
_AREAS: Final = (
    "topic",
    "namesrv",
    "broker",
    "cluster",
    "group",
    "connection",
    "offset",
    "stats",
    "message",
    "trace",
    "export",
    "kourou",
    "missing",
)

Command = AdminCommand | MissingCommand


@cache
def _commands_of(area: str) -> tuple[Command, ...]:
    module = import_module(f"kourou.cli.admin.{area}_commands")
    commands: tuple[Command, ...] = getattr(module, f"{area.upper()}_COMMANDS")
    return commands


def all_commands() -> Iterator[Command]:
    """Every command, in the order of the list."""
    for area in _AREAS:
        yield from _commands_of(area)


def find(name: str) -> Command | None:
    """The command of a name or an alias, in any case."""
    small = name.lower()
    for command in all_commands():
        if small in (command.name.lower(), *map(str.lower, command.aliases)):
            return command
    return None
