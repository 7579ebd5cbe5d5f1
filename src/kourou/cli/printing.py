"""How commands print tables: their width, and escaping of untrusted text."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

# Without a terminal lines are not wrapped, for grep.
_FILE_WIDTH = 250


class _PipeConsole(Console):
    """A console that leaves the handling of a closed output to run_command."""

    def on_broken_pipe(self) -> None:
        """rich would exit with 1."""
        raise BrokenPipeError


def wide_console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for one line per row in a file."""
    return _PipeConsole(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)


def shown(text: str) -> str:
    """Untrusted text for a table, with markup and control characters escaped."""
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)
    return escape(text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
