"""How `kourou` reports invalid options: one line, as for every other mistake, and exit code 2.

click would also print the usage.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from kourou.cli.problems import INTERRUPTED, USAGE, UsageError
from kourou.wording import nearest

# Other programs' words for commands of a group.
_OTHER_WORDS: Final = {
    "rm": ("remove", "delete"),
    "del": ("delete", "remove"),
    "delete": ("remove",),
    "remove": ("delete",),
    "ls": ("list",),
    "describe": ("show",),
    "info": ("show",),
    "get": ("show",),
    "status": ("show",),
    "new": ("create", "add"),
    "add": ("create",),
    "create": ("add",),
    "set": ("use",),
    "switch": ("use",),
    "select": ("use",),
}


class OneLineCommand(click.Command):
    """A command whose name is part of every message about its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options. click loses the command if an option lacks a value."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


class OneLineGroup(click.Group):
    """Commands of `kourou`, listed in the order in which they were added."""

    command_class = OneLineCommand
    other_words: Mapping[str, str] = {}
    """Words that are not commands of this group, with what to use instead."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in order; click would sort them."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command for the first word; suggests the nearest one if there is none."""
        is_missing = bool(args) and self.get_command(ctx, args[0]) is None
        if is_missing and args[0] == "help" and not ctx.resilient_parsing:
            return self._resolve_help(ctx, args[1:])
        # Shell completion gets no result, and no error.
        if is_missing and not ctx.resilient_parsing and not args[0].startswith("-"):
            meant = self.suggested_command(ctx, args[0])
            hint = f" Did you mean '{meant}'?" if meant is not None else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def _resolve_help(
        self, ctx: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`help COMMAND` is `COMMAND --help`, as in git; `help` alone shows the help of this group."""
        if not words:
            click.echo(ctx.get_help())
            ctx.exit()
        return self.resolve_command(ctx, [*words, "--help"])

    def suggested_command(self, ctx: click.Context, word: str) -> str | None:
        """The command that a mistyped word, or another program's word, probably means."""
        if word in self.other_words:
            return self.other_words[word]
        names = self.list_commands(ctx)
        meant = next((name for name in _OTHER_WORDS.get(word, ()) if name in names), None)
        return meant or nearest(word, names)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit, as click does, but with our usage messages."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            result = super().main(args, prog_name, complete_var, False, **extra)
        except click.UsageError as error:
            _exit_with_usage(error)
        except click.Abort as abort:
            # click treats the end of any input as that of the terminal.
            if isinstance(abort.__cause__, EOFError):
                raise abort.__cause__ from None
            sys.exit(INTERRUPTED)
        sys.exit(result if isinstance(result, int) else 0)


def whole_number(option: str, text: str) -> int:
    """The integer value of an option. UsageError if it is not one."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{option} {text}: must be a whole number") from None


def _exit_with_usage(error: click.UsageError) -> NoReturn:
    if isinstance(error, NoArgsIsHelpError):
        error.show()
        sys.exit(error.exit_code)
    program = program_name(error.ctx)
    message = " ".join(_message(error).split())
    if not message.endswith("?"):  # it already has a suggestion
        message = f"{message.rstrip('.')}; see {program} --help"
    print(f"{program}: {message}", file=sys.stderr)
    sys.exit(USAGE)


def _message(error: click.UsageError) -> str:
    """The message with our suggestion: click prefers --host to --port for --prot."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    meant = _suggested_options(error.option_name, error.ctx.command)
    *most, last = [f"'{option}'" for option in meant] or [""]
    hint = f" Did you mean {' or '.join([', '.join(most)] * bool(most) + [last])}?" if last else ""
    return f"No such option '{error.option_name}'.{hint}"


def _suggested_options(word: str, command: click.Command) -> list[str]:
    """The option nearest to a mistyped one, or all that end with the nearest word: --port and --prot may be
    --namesrv-port or --broker-port."""
    names = [
        name.removeprefix("--")
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("--")
    ]
    bare = word.lstrip("-")
    ends = [name.rpartition("-")[2] for name in names]
    if bare not in ends and (whole := nearest(bare, names)) is not None:
        return [f"--{whole}"]
    meant = bare if bare in ends else nearest(bare, ends)
    return [f"--{name}" for name, end in zip(names, ends, strict=True) if end == meant]


def program_name(context: click.Context | None) -> str:
    """The full name of the command: `kourou topic list`."""
    return " ".join(["kourou", *_command_names(context)])


def _command_names(context: click.Context | None) -> list[str]:
    """The command and its parents, without the program name."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return names
