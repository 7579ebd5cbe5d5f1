"""Options in the style of Apache's server scripts: `-c v`, `-c=v`, `--configFile v`, `-configFile v`.

A mistake prints one line and the usage, and exits with 2.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from kourou.cli.problems import USAGE


class ApacheParser(argparse.ArgumentParser):
    """An ArgumentParser with Apache's spelling."""

    def __init__(self, program: str, description: str) -> None:
        super().__init__(prog=program, description=description, allow_abbrev=False)

    def add(self, letter: str, name: str, text: str, **more: Any) -> None:
        """Add one option by its letter, if it has one, and its long name with one dash or two."""
        short = (f"-{letter}",) if letter else ()
        self.add_argument(*short, f"--{name}", dest=name, help=text, **more)
        # Accepted but not shown: commons-cli also allows one dash before a long name.
        self.add_argument(f"-{name}", dest=name, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **more)

    def error(self, message: str) -> NoReturn:
        """Exit with the message and the usage."""
        print(f"{self.prog}: {message}", file=sys.stderr)
        self.print_usage(sys.stderr)
        sys.exit(USAGE)
