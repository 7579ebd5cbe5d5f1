"""How commands print tables: how wide, and what becomes of text from outside."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

# Not on a terminal lines need not be broken: they are for grep.
_FILE_WIDTH = 250


class _PipeConsole(Console):
    """A console that leaves it to run_command how a command ends whose output is closed."""

    def on_broken_pipe(self) -> None:
        """rich would end the process with 1."""
        raise BrokenPipeError


def wide_console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for a line a row in a file."""
    return _PipeConsole(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)


def shown(text: str) -> str:
    """Text from outside for a table: nothing in it changes colours, or the terminal."""
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)
    return escape(text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
