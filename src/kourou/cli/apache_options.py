"""Options as Apache's server scripts take them: `-c v`, `-c=v`, `--configFile v`, `-configFile v`.

A mistake is one line and the usage, and exit code 1 as Apache's.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from kourou.cli.problems import FAILURE


class ApacheParser(argparse.ArgumentParser):
    """An ArgumentParser with Apache's spelling and exit code."""

    def __init__(self, program: str, description: str) -> None:
        super().__init__(prog=program, description=description, allow_abbrev=False)

    def add(self, letter: str, name: str, text: str, **more: Any) -> None:
        """Add one option by its letter, if it has one, and its long name with one dash or two."""
        short = (f"-{letter}",) if letter else ()
        self.add_argument(*short, f"--{name}", dest=name, help=text, **more)
        # Understood, not shown: commons-cli takes one dash before a long name too.
        self.add_argument(f"-{name}", dest=name, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **more)

    def error(self, message: str) -> NoReturn:
        """End with the message, then how the command is used."""
        print(f"{self.prog}: {message}", file=sys.stderr)
        self.print_usage(sys.stderr)
        sys.exit(FAILURE)
