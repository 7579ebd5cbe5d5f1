"""Every command line of `mqadmin`, and of the commands for daily work, in the documents is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kourou.cli.admin.command import AdminCommand
from kourou.cli.admin.options import check_required, parse
from kourou.cli.admin.registry import find
from kourou.cli.admin.run import COMMON
from kourou.cli.main import _DAILY, app

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
# In a block, or in the text between backquotes; without an option it is the name of a command only.
LINES = re.compile(r"(?:^ *|`)(?:mqadmin|kourou admin) (?!help )([A-Za-z]+ -[^`\n]*)", re.M)
CASES = [
    pytest.param(line, id=f"{path.name}: {line[:60]}")
    for path in DOCUMENTS
    for line in dict.fromkeys(LINES.findall(path.read_text()))
]
DAILY_LINES = re.compile(rf"(?:^ *(?:\$ )?|`|\| |\$\()kourou ((?:{'|'.join(_DAILY)}) [^`\n#)|]*)", re.M)
DAILY_CASES = [
    pytest.param(line, id=f"{path.name}: {line[:60]}")
    for path in DOCUMENTS
    # In a table a pipe is written with a backslash.
    for line in dict.fromkeys(DAILY_LINES.findall(path.read_text().replace(r"\|", "OR")))
    if not re.search(r"\b[A-Z]{4,}\b", line)  # placeholders
]


@pytest.mark.parametrize("line", CASES)
def test_a_command_line_is_understood(line: str) -> None:
    name, *words = shlex.split(line)
    command = find(name)
    assert isinstance(command, AdminCommand), f"mqadmin has no command {name}"
    options = (*command.options, *COMMON)
    check_required(options, parse(options, words))


@pytest.mark.parametrize("line", DAILY_CASES)
def test_a_line_of_daily_work_is_understood(line: str) -> None:
    command: click.Command = app
    words = shlex.split(line)
    context = click.Context(app, info_name="kourou")
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"{command.name} has no command {name}"
        command = found
    if words:  # otherwise it is the name of a command only
        command.make_context(command.name, words)  # raises for what it does not understand


def test_there_are_some() -> None:
    assert len(CASES) > 20 and len(DAILY_CASES) > 15
