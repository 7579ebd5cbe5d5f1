"""The producer groups in use in this process, and a warning where one is used in two ways.

A broker sends the check of a half message to any producer of the group. One without a listener cannot answer,
so half messages of a group that is used with and without transactions may stay pending.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Final

_log = logging.getLogger(__name__)

_lock: Final = threading.Lock()
_in_use: Final[Counter[tuple[str, bool]]] = Counter()


def enter_group(group: str, *, transactional: bool) -> None:
    """A producer of `group` starts."""
    with _lock:
        _in_use[group, transactional] += 1
        is_mixed = _in_use[group, not transactional] > 0
    if is_mixed:
        _log.warning(
            "producer group %r is used with and without transactions in this process: a broker may send the "
            "check of a half message to the producer that cannot answer it; use two groups",
            group,
        )


def leave_group(group: str, *, transactional: bool) -> None:
    """A producer of `group` stops."""
    with _lock:
        _in_use[group, transactional] -= 1
        if not _in_use[group, transactional]:
            del _in_use[group, transactional]
