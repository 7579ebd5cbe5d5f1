"""docs/testing.md: all its test files pass together. Its program runs in test_docs_in_order.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.doc_programs import PROJECT, steps

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GUIDE = "docs/testing.md"


def test_the_test_files_of_the_guide(tmp_path: Path) -> None:
    found = {step.file_name: step.text for step in steps(GUIDE) if step.file_name is not None}
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
