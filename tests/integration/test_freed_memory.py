"""keep_freed_memory: freed buffers cost no page faults when they come again; the rest is given back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kourou.freed_memory import keep_freed_memory

# Allocates and frees what a commit cycle does; prints the page faults.
_PROGRAM = """
import resource
from kourou.freed_memory import keep_freed_memory
is_kept = keep_freed_memory(32 << 20, 4 << 20, environ={})
for turn in range(20):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [b"x" * 300_000 for _ in range(8)]
    del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before if is_kept else 0)
"""

# The same in eight threads at once, and more of it; prints how many MiB stay in memory.
# As in a server, small objects of the threads lie in what imports have freed: one behind the buffers
# would keep these, too.
_BURST = """
import threading
import kourou.cli.service
from kourou.freed_memory import keep_freed_memory

def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

is_kept = keep_freed_memory(32 << 20, 4 << 20, environ={})
before = resident_mib()
everyone = threading.Barrier(8)

def read():
    buffers = [b"x" * 300_000 for _ in range(100)]
    everyone.wait()
    del buffers

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident_mib() - before if is_kept else 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_a_burst_is_given_back_except_for_so_much() -> None:
    done = subprocess.run([sys.executable, "-c", _BURST], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40  # 229, if each thread keeps some


def test_the_memory_of_buffers_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500  # 5,500 otherwise


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_environment_are_left_alone(name: str) -> None:
    assert not keep_freed_memory(1, 1, environ={name: "1"})
