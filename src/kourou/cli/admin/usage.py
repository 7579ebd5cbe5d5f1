"""How commands are used: the list of all, and the options of one in the layout of Apache's tools."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from kourou.cli.admin.command import AdminCommand, MissingCommand
from kourou.cli.admin.options import Option
from kourou.cli.admin.registry import missing_commands, sections

_WIDTH: Final = 110


def command_list(program: str, *, with_missing: bool = False) -> str:
    """All commands, a line each, by what they are about; `with_missing`: also those of Apache's that are not
    in this version."""
    missing = missing_commands()
    shown = [*sections(), ("Not in this version", missing)] if with_missing else sections()
    lines = [f"The most commonly used {program} commands are:"]
    for title, commands in shown:
        lines += ["", f"{title}:"]
        lines += [f"   {command.name:<35} {command.about}" for command in commands]
    lines += ["", f"See '{program} help <command>' for more information on a specific command."]
    if not with_missing:
        lines += [f"See '{program} help --all' for {len(missing)} more that are not in this version."]
    return "\n".join(lines) + "\n"


def usage(program: str, command: AdminCommand | MissingCommand, common: Sequence[Option]) -> str:
    """The usage of one command, with an example."""
    if isinstance(command, MissingCommand):
        return f"{program} {command.name}: needs {command.part}, which this version of Kourou does not have\n"
    options = sorted((*command.options, *common), key=lambda option: (option.is_ours, option.shown.lower()))
    lines = textwrap.wrap(
        " ".join([f"usage: {program} {command.name}", *_words(options)]), _WIDTH, subsequent_indent="       "
    )
    width = max(len(_names(option)) for option in options) + 3
    for option in options:
        lines += textwrap.wrap(
            option.about,
            _WIDTH,
            initial_indent=_names(option).ljust(width),
            subsequent_indent=" " * width,
        )
    lines += ["", f"{command.about.rstrip('.')}. Example:", f"    {program} {command.example}"]
    return "\n".join(lines) + "\n"


def _words(options: Sequence[Option]) -> list[str]:
    """The options as the first line has them: those of a group together."""
    words = []
    seen: set[str] = set()
    for option in options:
        if option.is_ours or option.group in seen:
            continue
        if option.group:
            seen.add(option.group)
            words.append(" | ".join(_word(other) for other in options if other.group == option.group))
        else:
            words.append(_word(option) if option.is_required else f"[{_word(option)}]")
    return words


def _word(option: Option) -> str:
    name = f"-{option.letter}" if option.letter else f"--{option.name}"
    return f"{name} <arg>" if option.takes_value else name


def _names(option: Option) -> str:
    names = f"-{option.letter},--{option.name}" if option.letter else f"--{option.name}"
    return f" {names} <arg>" if option.takes_value else f" {names}"
