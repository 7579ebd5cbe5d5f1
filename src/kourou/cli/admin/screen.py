"""Screen: the output of a command. Text in Apache's format; headings and errors in colour on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

import msgspec

from kourou.cli.admin.options import ParsedArgs

_HEAD: Final = "\x1b[1;36m"
_TROUBLE: Final = "\x1b[31m"
_PLAIN: Final = "\x1b[0m"
_FIRST_LINE: Final = "\x1b[H\x1b[J"
_WHOLE_LINE: Final = "\r\x1b[K"


class Screen:
    """Standard output and error of one command."""

    def __init__(
        self,
        args: ParsedArgs | None = None,
        *,
        is_v4: bool = False,
        out: TextIO | None = None,
        errors: TextIO | None = None,
    ) -> None:
        self.args = args or ParsedArgs({})
        self.is_v4 = is_v4
        """Whether to print like RocketMQ 4.9; like 5.x otherwise."""
        self._out = out or sys.stdout
        self._errors = errors or sys.stderr
        self.is_terminal = self._out.isatty()
        self._is_coloured = self.is_terminal and "NO_COLOR" not in os.environ
        self._has_progress = False
        self.has_trouble = False
        """Whether a part failed: the exit code is 1 then."""

    # -- text ------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        self._out.write(printable(text) if self.is_terminal else text)

    def line(self, text: str = "") -> None:
        self.write(text)
        self._out.write("\n")

    def head(self, text: str) -> None:
        self._out.write(f"{_HEAD}{text}{_PLAIN}\n" if self._is_coloured else f"{text}\n")

    def table(
        self, layout: str, names: Sequence[str], rows: Iterable[Sequence[object]], rows_layout: str = ""
    ) -> None:
        """Print a heading and rows; layouts are format strings, of which Apache often has two."""
        self.head(layout.format(*names))
        for row in rows:
            self.line((rows_layout or layout).format(*row))

    def trouble(self, text: str) -> None:
        """Report a failure on stderr while the command continues."""
        self.has_trouble = True
        is_coloured = self._errors.isatty() and "NO_COLOR" not in os.environ
        self._errors.write(f"{_TROUBLE}{text}{_PLAIN}\n" if is_coloured else f"{text}\n")
        self._errors.flush()

    def note(self, text: str) -> None:
        """Print a note on stderr that is not a failure, after what was printed before."""
        self.flush()
        self._errors.write(f"note: {text}\n")
        self._errors.flush()

    # -- for people ------------------------------------------------------------------------------

    def progress(self, text: str) -> None:
        """Show the progress of a long command on one line of stderr, if that is a terminal."""
        if self._errors.isatty():
            self._errors.write(f"{_WHOLE_LINE}{text}")
            self._errors.flush()
            self._has_progress = True

    def end_progress(self) -> None:
        """Erase the line of progress."""
        if self._has_progress:
            self._errors.write(_WHOLE_LINE)
            self._errors.flush()
            self._has_progress = False

    def next_round(self) -> None:
        """Prepare to print a table again: in place on a terminal, after an empty line in a file."""
        self._out.write(_FIRST_LINE if self.is_terminal else "\n")

    # -- JSON ------------------------------------------------------------------------------------

    def json(self, data: Any, *, is_line: bool = False) -> None:
        """Print data as JSON: one line for each of several results, a single one indented."""
        plain = msgspec.to_builtins(data, str_keys=True)
        self.has_trouble = self.has_trouble or _has_problem(plain)
        indent = None if is_line else 2
        self._out.write(json.dumps(plain, ensure_ascii=False, indent=indent) + "\n")

    def flush(self) -> None:
        """Write out what is buffered."""
        self._out.flush()


def printable(text: str, kept: str = "\n\t") -> str:
    """Make text from a message safe to print: no control characters that move the cursor or change colours.
    Non-printable characters in `kept` stay."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in kept else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )


def _has_problem(plain: Any) -> bool:
    """Whether a part of a result reports a problem."""
    if isinstance(plain, dict):
        return bool(plain.get("problem")) or any(map(_has_problem, plain.values()))
    return isinstance(plain, list) and any(map(_has_problem, plain))
