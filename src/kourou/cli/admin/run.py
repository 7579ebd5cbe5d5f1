"""From a command line to its exit code: parsing, usage texts, the round trip, errors.

Bad input, an unreachable broker, an error response: one line on stderr that keeps Apache's wording
(`CODE: 17  DESC: …`), and exit code 1. Apache's tools print a stack trace and exit with 0.
"""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from kourou import __version__
from kourou.admin.advice import advice_on
from kourou.admin.session import Admin
from kourou.cli.admin.command import AdminCommand, Call, MissingCommand
from kourou.cli.admin.connecting import CONNECTING, client_options
from kourou.cli.admin.options import Option, ParsedArgs, check_required, flag, parse, value
from kourou.cli.admin.registry import all_commands, find, missing_commands, sections
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import FAILURE, USAGE, UsageError, run_command
from kourou.errors import ConfigError, KourouError, NameServerNotGivenError, ResponseError
from kourou.wording import nearest

FORMAT_VARIABLE: Final = "KOUROU_MQADMIN_FORMAT"
"""The environment variable for `--format`."""
_V4: Final = "4.9"
_TOPICS: Final = ("topic", "topicName")
_GROUPS: Final = ("consumerGroup", "groupName", "group", "consumer", "srcGroup")
_OURS: Final = (
    *CONNECTING,
    Option("", "json", "print the result as JSON", takes_value=False, is_ours=True),
    Option("", "yes", "do not ask before something is destroyed", takes_value=False, is_ours=True),
    Option("", "format", f"print as RocketMQ {_V4}, or 5 (the default)", is_ours=True),
)
COMMON: Final = (
    flag("h", "help", "show how the command is used"),
    value("n", "namesrvAddr", "name servers, 'host:9876;host:9876'; quote the list"),
    *_OURS,
)
"""What every command takes."""
COMPLETE: Final = "__complete"
"""A command for the scripts of `completion` only, so it is in no list."""
_WIDTH: Final = 110


def main(program: str, words: Sequence[str]) -> None:
    """Run a command line without the name of the program, and end the process."""
    if not words:
        print(command_list(program), end="")
        return
    name, *rest = words
    if name in ("-h", "--help") or (name.lower() == "help" and rest in ([], ["--all"])):
        print(command_list(program, with_missing="--all" in rest), end="")
        return
    if name == "--version":
        print(f"{program} {__version__}")
        return
    if name == COMPLETE:
        from kourou.cli.admin.completion import print_names

        print_names(rest)
        return
    is_help = name.lower() == "help"
    command = _command(program, rest[0] if is_help else name)
    if is_help or any(word in ("-h", "--help", "-help") for word in rest):
        print(usage(program, command, COMMON), end="")
        return
    if isinstance(command, MissingCommand):
        run_command(f"{program} {command.name}", lambda: _refuse(command))
    else:
        is_output_all = not command.changes_as_it_prints
        run_command(
            f"{program} {command.name}", lambda: _run(program, command, rest), is_output_all=is_output_all
        )


def _command(program: str, name: str) -> AdminCommand | MissingCommand:
    command = find(name)
    if command is not None:
        return command
    if name.startswith("-"):
        print(f"{program}: {name} comes after the command: {program} COMMAND {name} …", file=sys.stderr)
        sys.exit(USAGE)
    hint = nearest(name, (known.name for known in all_commands()))
    print(
        f"{program}: The sub command {name} not exist; "
        + (f"did you mean {hint}?" if hint else f"see {program} help"),
        file=sys.stderr,
    )
    sys.exit(USAGE)


def _refuse(command: MissingCommand) -> None:
    raise ConfigError(f"needs {command.part}, which this version of Kourou does not have")


def _run(program: str, command: AdminCommand, words: list[str]) -> None:
    options = (*command.options, *COMMON)
    try:
        args = parse(options, words)
        check_required(options, args)
        call_options = client_options(args)
    except UsageError:
        print(usage(program, command, COMMON), end="")
        raise
    form = args.text("format", os.environ.get(FORMAT_VARIABLE, ""))
    if form and form[0] not in "45":
        raise UsageError(f"--format {form}: must be {_V4} or 5")
    screen = Screen(args, is_v4=form.startswith("4"))
    question = command.question(args) if command.question is not None else None
    if question and not args.flag("yes"):
        _confirm(question, screen)
    try:
        asyncio.run(_ask(command, args, screen, Admin(**call_options)))
    except NameServerNotGivenError:
        raise NameServerNotGivenError(
            "no name server given: use -n host:9876, --config FILE with rocketmq.namesrv.addr, the "
            "environment variable NAMESRV_ADDR, a saved context (kourou context add), or an address service "
            "(rocketmq.namesrv.domain in the file)"
        ) from None
    finally:
        screen.end_progress()
        screen.flush()
    if screen.has_trouble:
        sys.exit(FAILURE)


def _confirm(question: str, screen: Screen) -> None:
    """Ask for confirmation on a terminal; scripts written for Apache's tools are not blocked."""
    if not (sys.stdin.isatty() and screen.is_terminal):
        return
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:  # Ctrl-D
        print()
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was done; --yes skips the question")


async def _ask(command: AdminCommand, args: ParsedArgs, screen: Screen, admin: Admin) -> None:
    if not command.needs_cluster:
        await _one_round(command, Call(args, admin, screen))
        return
    interval_s = command.interval_s(args) if command.interval_s is not None else None
    async with admin:
        call = Call(args, admin, screen)
        while True:
            try:
                await _one_round(command, call)
            except ResponseError as error:
                topic, group = _first(args, _TOPICS), _first(args, _GROUPS)
                advice = await advice_on(admin, error, topic=topic, group=group)
                if not advice:
                    raise
                raise KourouError(f"{error}{advice}") from error
            if interval_s is None:
                return
            screen.flush()
            await asyncio.sleep(interval_s)
            if not args.flag("json"):
                screen.next_round()


def _first(args: ParsedArgs, names: Sequence[str]) -> str | None:
    """The value of whichever of these options was given."""
    return next((args.text(name) for name in names if name in args), None)


async def _one_round(command: AdminCommand, call: Call) -> None:
    is_json = call.args.flag("json")
    if command.ask is not None:
        data = await command.ask(call)
        call.screen.end_progress()
        if is_json:
            call.screen.json(data)
        else:
            command.show(data, call.screen)
        return
    assert command.stream is not None
    items = command.stream(call)
    try:
        async for item in items:
            call.screen.end_progress()
            if is_json:
                call.screen.json(item, is_line=True)
            else:
                command.show(item, call.screen)
    finally:
        # Its clients are stopped here, and not by whoever finds it left over when the loop ends: `| head`
        # breaks off in the middle.
        if isinstance(items, AsyncGenerator):
            await items.aclose()


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
