"""Crash tests: every test here has the marker `crash` and a folder in memory where there is one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.crash)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing, where the system has one: the simulated disk needs no real one."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="kourou-crash-", dir=_MEMORY))
    yield made
    shutil.rmtree(made, ignore_errors=True)
