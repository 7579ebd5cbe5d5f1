"""Reads of a map whose file was cut short, in processes of their own: without the guard they die."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needed import need

PROGRAM = """
import mmap, os, sys
from kourou.store.disk.map_guard import MapGuard

path, is_guarded = sys.argv[1], sys.argv[2] == "guarded"
pages = 16
with open(path, "w+b") as file:
    file.write(b"x" * pages * mmap.PAGESIZE)
    file.flush()
    other = mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ)
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
guard = MapGuard(mapped if is_guarded else other)
view = memoryview(mapped)
views = [view[number * mmap.PAGESIZE :][:10] for number in range(pages)]
os.truncate(path, 3 * mmap.PAGESIZE)
read = b"".join(views)
assert read == b"x" * 30 + bytes(130), read
assert guard.is_broken
"""


@pytest.mark.parametrize(("word", "status"), [("guarded", 0), ("unguarded", -signal.SIGBUS)])
def test_a_read_behind_the_end_of_a_guarded_map_is_survived_and_no_other(
    tmp_path: Path, word: str, status: int
) -> None:
    need("Linux", sys.platform == "linux")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "log"), word], stderr=subprocess.PIPE, timeout=60
    )
    assert ended.returncode == status, ended.stderr.decode()
