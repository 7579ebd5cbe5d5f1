"""keep_freed_memory: buffers that are freed cost no page faults when they are allocated again."""

from __future__ import annotations

import subprocess
import sys

# Allocates and frees what a commit cycle does; prints the page faults.
_PROGRAM = """
import resource
from kourou.cli import service
is_kept = service.keep_freed_memory({})
for turn in range(20):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [b"x" * 300_000 for _ in range(8)]
    del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before if is_kept else 0)
"""


def test_the_memory_of_buffers_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500  # 5,500 otherwise
