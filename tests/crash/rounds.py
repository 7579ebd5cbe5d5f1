"""How many rounds a fault loop runs, and from which seed.

By default a loop is bounded by seconds and begins with the same seed every time, so that a change is
judged by what it changed. `KOUROU_NIGHTLY=1` (`make nightly`) runs the full counts from a new seed; a loop
that has not finished after KOUROU_NIGHTLY_LOOP_S seconds ends there. `KOUROU_SEED=n` repeats that one round
and nothing else. Every loop reports its first seed and its count at the end of the run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NIGHTLY = os.environ.get("KOUROU_NIGHTLY") == "1"
"""Whether fault loops run their full counts."""
REPLAY = os.environ.get("KOUROU_SEED")

_DEFAULT_SEED = 20_261_115
# So that a slow machine cannot make one loop take the whole night.
_NIGHTLY_LOOP_S = float(os.environ.get("KOUROU_NIGHTLY_LOOP_S", "300"))

summaries: list[str] = []
"""One line per loop that ran, for the end of the test run."""


def first_seed() -> int:
    """Where a loop begins."""
    return random.SystemRandom().randrange(1 << 32) if NIGHTLY else _DEFAULT_SEED


def seeds(what: str, *, seconds: float, full: int) -> Iterator[int]:
    """Seeds for rounds of `what`: at most `full`, at least one, for as long as `time_left` allows."""
    if REPLAY is not None:
        yield int(REPLAY)
        return
    first = first_seed()
    began = time.monotonic()
    count = 0
    try:
        while count < full and (not count or time_left(began, seconds)):
            yield first + count
            count += 1
    finally:
        summaries.append(f"{what}: {count} rounds in {time.monotonic() - began:.1f} s, seeds from {first}")


def time_left(began: float, seconds: float) -> bool:
    """Whether a loop that began at this monotonic time goes on; outside of nightly runs for `seconds`."""
    return time.monotonic() - began < (_NIGHTLY_LOOP_S if NIGHTLY else seconds)


@contextmanager
def replayable(seed: int, **details: object) -> Iterator[None]:
    """Whatever goes wrong inside says how to have it again."""
    try:
        yield
    except BaseException as error:
        reported = "".join(f", {name} {value}" for name, value in details.items())
        error.add_note(f"again with KOUROU_SEED={seed}{reported}")
        raise


def each_round(what: str, run: Callable[[int], object], *, seconds: float, full: int) -> None:
    """Run `run(seed)` for every seed."""
    for seed in seeds(what, seconds=seconds, full=full):
        with replayable(seed):
            run(seed)
