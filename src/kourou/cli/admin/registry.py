"""All commands, by area. An area is imported when a command is looked for there: most need only a part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Final

from kourou.cli.admin.command import AdminCommand, MissingCommand

# In the order of the list: titles, and the areas below each. Module `topic_commands` has TOPIC_COMMANDS.
_SECTIONS: Final = {
    "Topics": ("topic",),
    "Consumer groups": ("group", "offset", "stats"),
    "Messages": ("message", "trace"),
    "Clients": ("connection",),
    "Brokers": ("broker",),
    "Cluster and name servers": ("cluster", "namesrv"),
    "Exports": ("export",),
    "Only in Kourou": ("kourou",),
}
_MISSING: Final = "missing"

Command = AdminCommand | MissingCommand


@cache
def _commands_of(area: str) -> tuple[Command, ...]:
    module = import_module(f"kourou.cli.admin.{area}_commands")
    commands: tuple[Command, ...] = getattr(module, f"{area.upper()}_COMMANDS")
    return commands


def sections() -> Iterator[tuple[str, list[Command]]]:
    """The commands that there are, by what they are about, in the order of the list."""
    for title, areas in _SECTIONS.items():
        yield title, [command for area in areas for command in _commands_of(area)]


def missing_commands() -> tuple[Command, ...]:
    """Apache's commands that are not in this version."""
    return _commands_of(_MISSING)


def all_commands() -> Iterator[Command]:
    """Every command, those that are not in this version last."""
    for _, commands in sections():
        yield from commands
    yield from missing_commands()


def find(name: str) -> Command | None:
    """The command of a name or an alias, in any case."""
    small = name.lower()
    for command in all_commands():
        if small in (command.name.lower(), *map(str.lower, command.aliases)):
            return command
    return None
