"""Folders of tests in memory, where the system has a tmpfs for everyone.

A broker syncs its files dozens of times while it starts and stops; on a disk, tests with a broker spend half
of their time waiting for that. KOUROU_TEST_ON_DISK=1 keeps everything on disk, as pytest does by itself:
CI runs the suites of the broker once more that way, and the files of a failed test stay for a look.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_TMPFS = Path("/dev/shm")
_NEEDED_BYTES = 1 << 30


def _memory_root() -> Path | None:
    if os.environ.get("KOUROU_TEST_ON_DISK") == "1" or not os.access(_TMPFS, os.W_OK):
        return None
    return _TMPFS if shutil.disk_usage(_TMPFS).free >= _NEEDED_BYTES else None


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of a test, and of the programs that it starts, are in memory too."""
    if tmp_path.is_relative_to(_TMPFS):
        monkeypatch.setattr(tempfile, "tempdir", str(_TMPFS))
        monkeypatch.setenv("TMPDIR", str(_TMPFS))


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """pytest's folder for one test, in memory."""
    root = _memory_root()
    if root is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(
        prefix=f"{tmp_path.name[:30]}-", dir=root, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


@pytest.fixture(name="tmp_path")
def disk_tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For modules that import it: pytest's folder where it would be otherwise, on disk as a rule."""
    return tmp_path_factory.mktemp("disk")
