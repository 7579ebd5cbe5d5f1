"""The page cache: what of a folder's files is in it, how to get it out, and the memory that it is made of.

The kernel keeps pages that a running process has mapped: stop a broker that maps its log, then drop.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

_ZEROS = bytes(1024 * 1024)


def touch_memory(share: float) -> int:
    """Use this part of the memory that is free, once, and give it back; how many bytes that are.

    The host of a virtual machine provides memory when it is used first. That makes writing into the page
    cache three times as slow: the first to be measured would pay for all.
    """
    size = int(os.sysconf("SC_AVPHYS_PAGES") * share) * mmap.PAGESIZE
    with mmap.mmap(-1, max(size, mmap.PAGESIZE)) as memory:
        for start in range(0, size, len(_ZEROS)):
            memory[start : start + len(_ZEROS)] = _ZEROS[: size - start]
    return size


def drop(folder: Path) -> None:
    """Take all files below a folder out of the page cache; what is not on the disk yet is written first."""
    os.sync()
    for path in _files(folder):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(folder: Path) -> float:
    """Which part of all pages of the files below a folder is in the page cache, from 0 to 1."""
    counts = [_resident_pages(path) for path in _files(folder)]
    pages = sum(total for _, total in counts)
    return sum(resident for resident, _ in counts) / pages if pages else 0.0


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size)


def _resident_pages(path: Path) -> tuple[int, int]:
    pages = -(-path.stat().st_size // mmap.PAGESIZE)
    # A private mapping, since only a writable one tells its address; nothing is written.
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        answer = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), answer)
        # The mapping cannot be closed while its address is in use.
        del start
        if failed:
            raise OSError(ctypes.get_errno(), f"mincore of {path}")
        return sum(value & 1 for value in bytes(answer)), pages


def available_bytes() -> int:
    """Memory that can be had without swapping; 0 where the system does not tell."""
    meminfo = Path("/proc/meminfo")
    words = meminfo.read_text().split() if meminfo.exists() else []
    return int(words[words.index("MemAvailable:") + 1]) * 1024 if "MemAvailable:" in words else 0
