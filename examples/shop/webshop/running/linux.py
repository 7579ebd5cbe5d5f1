"""What a child says of itself to Linux: that it dies with its parent, and its name."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_libc: Final = ctypes.CDLL(None)


def die_with(parent: int) -> None:
    """In a child, after it has its user: be killed when the parent dies, even if stopped (SIGSTOP) then. The
    parent may have died already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """The name that `ps -e` and `pgrep` show; 15 bytes of it."""
    _libc.prctl(_PR_SET_NAME, name.encode())
