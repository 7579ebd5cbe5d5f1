"""What `kourou` says of options that it cannot read: one line, as of every other mistake.

Typer would draw a box around it and end with 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from kourou.cli.problems import FAILURE
from kourou.errors import ConfigError

# Under its own name it is in another place in every other version of Typer.
_USAGE_ERROR: Final[type[Exception]] = typer.BadParameter.__bases__[0]
_NO_ARGUMENTS: Final = "NoArgsIsHelpError"
_STORE_FAILURE: Final = 2


class OneLineGroup(TyperGroup):
    """The commands of `kourou`."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and end the process, as Typer does, but for the words about usage."""
        try:
            result = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _USAGE_ERROR as error:
            if not standalone_mode:
                raise
            _exit_with_usage(error)
        if standalone_mode:
            sys.exit(result if isinstance(result, int) else 0)
        return result


def whole_number(option: str, text: str) -> int:
    """The number that an option was given. ConfigError: it is none."""
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{option} {text}: must be a whole number") from None


def _exit_with_usage(error: Any) -> NoReturn:
    if type(error).__name__ == _NO_ARGUMENTS:
        error.show()
        sys.exit(error.exit_code)
    names = _command_names(error.ctx)
    program = " ".join(["kourou", *names])
    message = " ".join(error.format_message().split())
    if not message.endswith("?"):  # it has found out what was meant
        message = f"{message.rstrip('.')}; see {program} --help"
    print(f"{program}: {message}", file=sys.stderr)
    # `kourou store` says with 1 that something is wrong with the store.
    sys.exit(_STORE_FAILURE if names[:1] == ["store"] else FAILURE)


def _command_names(context: Any) -> list[str]:
    """The command and those above it, without `kourou`, whatever that was started as."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return names
