"""`kourou completion`: shell scripts that complete commands, options, topics, groups and contexts.

The scripts are click's: a shell calls `kourou` itself, with an environment variable, for completions. Names
of topics and groups come from the cluster on the command line, within 300 ms (admin/completion.py).
"""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from kourou.cli.admin.completion import rejoined
from kourou.cli.usage import OneLineCommand

VARIABLE: Final = "_KOUROU_COMPLETE"
"""The environment variable of completion requests; click derives it from the program's name."""
_PROGRAM: Final = "kourou"


class _Bash(BashComplete):
    """bash splits words at every colon, so addresses must be rejoined."""

    def source(self) -> str:
        """The script. click would start bash to check its version."""
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and the word at it."""
        current = int(os.environ["COMP_CWORD"])
        words = split_arg_string(os.environ["COMP_WORDS"])
        is_new = len(words) <= current
        _, *given = rejoined(words[: current + 1])
        if is_new or not given:
            return given, ""
        return given[:-1], given[-1]


_SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": _Bash, "zsh": ZshComplete, "fish": FishComplete}


def use_own_completion() -> None:
    """Make click use the classes of this module."""
    add_completion_class(_Bash, "bash")


@click.command(cls=OneLineCommand)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script for kourou.

    \b
    bash 4.4 and later:  eval "$(kourou completion bash)"     in ~/.bashrc
    zsh:                 eval "$(kourou completion zsh)"      in ~/.zshrc
    fish:                kourou completion fish | source      in ~/.config/fish/config.fish
    """
    root = context.find_root().command
    click.echo(_SHELLS[shell](root, {}, _PROGRAM, VARIABLE).source())
