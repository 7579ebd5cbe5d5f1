"""Ctrl-C while a program is still being loaded."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

# Presses Ctrl-C at the moment when a module is looked for.
_PROGRAM = """
import os, signal, sys
_, program, module = sys.argv

class PressCtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, PressCtrlC())
sys.argv = [program, "--help"]
from kourou.cli import programs
getattr(programs, program)()
"""


def test_every_program_is_loaded_that_way() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    scripts = tomllib.loads(project.read_text())["project"]["scripts"]
    assert scripts == {name: f"kourou.cli.programs:{name}" for name in scripts}


@pytest.mark.parametrize(
    ("program", "module"),
    [("mqadmin", "kourou.cli.admin.run"), ("mqbroker", "kourou.cli.broker"), ("kourou", "click")],
)
def test_ctrl_c_while_a_program_loads_ends_it_quietly(program: str, module: str) -> None:
    words = [sys.executable, "-c", _PROGRAM, program, module]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
