"""CPU time of processes: on a shared machine it says more than the clock does."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name: parent, own time (user, system), time of ended children.
_PARENT, _OWN, _ENDED = 1, (11, 12), (13, 14)


def own_s(pid: int) -> float:
    """What a process has used itself."""
    fields = _stat(pid)
    return sum(int(fields[index]) for index in _OWN) / _TICKS_PER_S if fields else 0.0


def children_s(pid: int) -> float:
    """What its children have used, and theirs."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    return _ended_s(pid) + sum(_tree_s(child, parents) for child in parents.get(pid, ()))


def _tree_s(pid: int, parents: dict[int, list[int]]) -> float:
    below = sum(_tree_s(child, parents) for child in parents.get(pid, ()))
    return own_s(pid) + _ended_s(pid) + below


def _ended_s(pid: int) -> float:
    fields = _stat(pid)
    return sum(int(fields[index]) for index in _ENDED) / _TICKS_PER_S if fields else 0.0


def _stat(pid: int) -> list[str]:
    """Nothing for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
