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

# Allocates and frees more than is kept; prints how many MiB stay in memory. The list is made first: a small
# object behind the buffers would keep these, too.
_BURST = """
from kourou.freed_memory import keep_freed_memory

def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

is_kept = keep_freed_memory(32 << 20, 4 << 20, environ={})
before = resident_mib()
buffers = [None] * 800
for number in range(800):
    buffers[number] = b"x" * 300_000
most = resident_mib() - before
for number in reversed(range(800)):
    buffers[number] = None
print(most, resident_mib() - before if is_kept else 0)
"""

# Prints what the C library says of its heaps after eight threads have allocated at once.
_THREADS = """
import ctypes
import threading
from kourou.freed_memory import keep_freed_memory

is_kept = keep_freed_memory(32 << 20, 4 << 20, environ={})
everyone = threading.Barrier(8)

def read():
    buffer = b"x" * 300_000
    everyone.wait()

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
if not is_kept or not hasattr(libc, "malloc_info"):
    print('<heap nr="0">')
else:
    libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
    libc.fflush(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_a_burst_is_given_back_except_for_so_much() -> None:
    done = subprocess.run([sys.executable, "-c", _BURST], capture_output=True, text=True, check=True)
    most, left = map(int, done.stdout.split())
    assert most > 200
    assert left < 40


def test_all_threads_have_one_heap() -> None:
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, check=True)
    assert done.stdout.count("<heap nr=") == 1  # each would keep so much


def test_the_memory_of_buffers_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500  # 5,500 otherwise


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_environment_are_left_alone(name: str) -> None:
    assert not keep_freed_memory(1, 1, environ={name: "1"})
