"""How many rounds a fault loop runs, and from which seed.

By default a loop is bounded by seconds and begins with the same seed every time, so that a change is
judged by what it changed. `KOUROU_SOAK=1` runs the full counts from a seed never used before,
`KOUROU_SEED=n` that one round again and nothing else. Every loop says its first seed and its count at the
end of the run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

SOAK = os.environ.get("KOUROU_SOAK") == "1"
soak_only = pytest.mark.skipif(not SOAK, reason="runs in a soak (KOUROU_SOAK=1)")
"""For what takes a minute, and is shown in every run by a shorter test, too."""
REPLAY = os.environ.get("KOUROU_SEED")

_DEFAULT_SEED = 20_261_115

summaries: list[str] = []
"""One line per loop that ran, for the end of the test run."""


def first_seed() -> int:
    """Where a loop begins."""
    return random.SystemRandom().randrange(1 << 32) if SOAK else _DEFAULT_SEED


def seeds(what: str, *, seconds: float, full: int) -> Iterator[int]:
    """Seeds for rounds of `what`: for so many seconds, at least one; in a soak `full` of them."""
    if REPLAY is not None:
        yield int(REPLAY)
        return
    first = first_seed()
    began = time.monotonic()
    count = 0
    try:
        while count < full and (SOAK or not count or time.monotonic() - began < seconds):
            yield first + count
            count += 1
    finally:
        summaries.append(f"{what}: {count} rounds in {time.monotonic() - began:.1f} s, seeds from {first}")


@contextmanager
def replayable(seed: int, **details: object) -> Iterator[None]:
    """Whatever goes wrong inside says how to have it again."""
    try:
        yield
    except BaseException as error:
        told = "".join(f", {name} {value}" for name, value in details.items())
        error.add_note(f"again with KOUROU_SEED={seed}{told}")
        raise


def each_round(what: str, run: Callable[[int], object], *, seconds: float, full: int) -> None:
    """Run `run(seed)` for every seed."""
    for seed in seeds(what, seconds=seconds, full=full):
        with replayable(seed):
            run(seed)
