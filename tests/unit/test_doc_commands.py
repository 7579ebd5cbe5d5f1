"""Every `mqadmin` command line in the documents is one that the program understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kourou.cli.admin.command import AdminCommand
from kourou.cli.admin.options import check_required, parse
from kourou.cli.admin.registry import find
from kourou.cli.admin.run import COMMON

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
# In a block, or in the text between backquotes; without an option it is the name of a command only.
LINES = re.compile(r"(?:^ *|`)(?:mqadmin|kourou admin) ([A-Za-z]+ -[^`\n]*)", re.M)
CASES = [
    pytest.param(line, id=f"{path.name}: {line[:60]}")
    for path in DOCUMENTS
    for line in dict.fromkeys(LINES.findall(path.read_text()))
]


@pytest.mark.parametrize("line", CASES)
def test_a_command_line_is_understood(line: str) -> None:
    name, *words = shlex.split(line)
    command = find(name)
    assert isinstance(command, AdminCommand), f"mqadmin has no command {name}"
    options = (*command.options, *COMMON)
    check_required(options, parse(options, words))


def test_there_are_some() -> None:
    assert len(CASES) > 20
