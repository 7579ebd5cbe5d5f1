"""What the commands of parts say that this version does not have."""

from __future__ import annotations

from typing import NoReturn

from kourou import __version__
from kourou.cli.problems import exit_with


def exit_not_yet(program: str, part: str) -> NoReturn:
    """Say that a part is missing from this version and end with exit code 1."""
    exit_with(program, [f"{part} is not in this version of Kourou ({__version__})"])
