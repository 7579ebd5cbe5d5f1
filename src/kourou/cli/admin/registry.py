"""All commands, by area. An area is imported on demand: most runs need only one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Final

from kourou.cli.admin.command import AdminCommand, MissingCommand

# Titles, and the areas below each, in the order of the list. Module `topic_commands` has TOPIC_COMMANDS.
_SECTIONS: Final = {
    "Topics": ("topic",),
    "Consumer groups": ("group", "offset", "stats"),
    "Messages": ("message", "trace"),
    "Clients": ("connection",),
    "Brokers": ("broker",),
    "Cluster and name servers": ("cluster", "namesrv"),
    "Access control": ("auth", "plain_acl"),
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
    """The available commands by topic, in the order of the list."""
    for title, areas in _SECTIONS.items():
        yield title, [command for area in areas for command in _commands_of(area)]


def missing_commands() -> tuple[Command, ...]:
    """Apache's commands that are not available in this version."""
    return _commands_of(_MISSING)


def all_commands() -> Iterator[Command]:
    """Every command, unavailable ones last."""
    for _, commands in sections():
        yield from commands
    yield from missing_commands()


def find(name: str) -> Command | None:
    """The command with this name or alias, in any case; None if there is none."""
    small = name.lower()
    for command in all_commands():
        if small in (command.name.lower(), *map(str.lower, command.aliases)):
            return command
    return None
