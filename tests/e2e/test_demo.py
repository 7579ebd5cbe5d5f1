"""`kourou demo`: shows a route, leaves nothing behind, takes a moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def test_the_demo_prints_a_route_as_a_table(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli.main", "demo"],
        env={**os.environ, "HOME": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.stdout.splitlines()]
    assert ["broker-a", "master", "192.0.2.10:10911", "4", "4", "RW"] in rows
    assert ["broker-a", "slave", "192.0.2.11:10911", "8", "8", "R"] in rows
    assert "kourou namesrv" in done.stdout
    assert list(tmp_path.iterdir()) == []
