"""docs/testing.md: its program runs and prints what it says, and all its test files pass together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.client.doc_programs import PROJECT, Section, run_program, sections

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GUIDE = "docs/testing.md"
_FILE = re.compile(r"# (\S+\.py)\n")


def files(of: list[Section]) -> dict[str, str]:
    """The blocks that are files: their first line has the name."""
    codes = [program.code for section in of for program in section.programs]
    return {found[1]: code for code in codes if (found := _FILE.match(code))}


async def test_the_program_of_the_guide(tmp_path: Path) -> None:
    programs = [program for section in sections(GUIDE) for program in section.programs]
    (program,) = [program for program in programs if not _FILE.match(program.code)]
    await run_program(program, "127.0.0.1:1", tmp_path)


def test_the_test_files_of_the_guide(tmp_path: Path) -> None:
    found = files(sections(GUIDE))
    assert len(found) == 7
    for name, code in found.items():
        (tmp_path / name).write_text(code)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider",
         "-o", "asyncio_default_fixture_loop_scope=function"],
        cwd=tmp_path, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 passed" in ran.stdout


def test_the_guide_has_every_method() -> None:
    from kourou.testing import LocalCluster

    guide = (PROJECT / GUIDE).read_text()
    public = [name for name in vars(LocalCluster) if not name.startswith("_")]
    assert "wait_consumed" in public
    unused = [name for name in public if name not in guide and name not in {"broker_addresses"}]
    assert unused == []
