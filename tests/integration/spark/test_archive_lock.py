"""The lock of an archive, between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from tests.needed import need_module

need_module("pyarrow")

from kourou.spark.pipelines.archive.archive_folder import ensure_archive  # noqa: E402

LOCKING = """
import sys
from kourou.spark.pipelines.archive.archive_folder import open_archive
with open_archive(sys.argv[1]).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_only_one_process_archives_and_a_kill_ends_its_lock(tmp_path: Path) -> None:
    archive = ensure_archive(tmp_path / "a", topics=["a"])
    archive.save()
    other = subprocess.Popen(
        [sys.executable, "-c", LOCKING, str(tmp_path / "a")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None and other.stdout.readline() == b"locked\n"
        with pytest.raises(ConfigError, match=f"process {other.pid} is archiving to it"), archive.locked():
            pass
        other.kill()
        other.wait()
        with archive.locked():
            pass
