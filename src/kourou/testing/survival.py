"""Survival: which unsynced changes a power loss leaves.

A `Survival` is called once for everything that fails independently (a sector, a file's length, a name): it
gets the times of the unsynced changes to it, ascending, and returns how many of them, counted from the first,
reached the disk. All changes of a sector are in one page of memory, so a later one cannot be on disk without
the earlier ones; two sectors may be at different times.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

Survival: TypeAlias = Callable[[Sequence[int]], int]


def drop_all(times: Sequence[int]) -> int:
    """Only synced changes are left."""
    return 0


def keep_all(times: Sequence[int]) -> int:
    """All changes reached the disk, synced or not."""
    return len(times)


def by_seed(seed: int, now: int) -> Survival:
    """One of several kinds of power loss, determined by the seed; `now` is the time of the last change."""
    chance = random.Random(seed)
    kinds: list[Survival] = [
        drop_all,
        keep_all,
        lambda times: chance.randint(0, len(times)),
        _mostly(chance, keep_all),
        _mostly(chance, drop_all),
        _until(chance, chance.randint(0, now)),
        _until(chance, max(0, now - chance.randint(0, 8))),
    ]
    return chance.choice(kinds)


def _mostly(chance: random.Random, usual: Survival) -> Survival:
    """A few at random, the others as usual."""

    def survive(times: Sequence[int]) -> int:
        return chance.randint(0, len(times)) if chance.random() < 0.1 else usual(times)

    return survive


def _until(chance: random.Random, last: int) -> Survival:
    """All changes up to one in time, and that one torn."""

    def survive(times: Sequence[int]) -> int:
        return chance.choice((bisect_left(times, last), bisect_right(times, last)))

    return survive
