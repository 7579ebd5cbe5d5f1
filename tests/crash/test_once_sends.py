"""Twenty producers, dying brokers, a network that loses, delays and repeats: each value is stored once.

The same run with ordinary producers stores some of them twice: the faults are real.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash import rounds
from tests.crash.once_run import OnceRun, Outcome
from tests.crash.rounds import NIGHTLY, first_seed, replayable

_MESSAGES = 100_000
_NIGHTLY_MESSAGES = 1_000_000
_ORDINARY_MESSAGES = 10_000


def run(folder: Path, *, idempotent: bool, messages: int) -> Outcome:
    seed = int(rounds.REPLAY) if rounds.REPLAY is not None else first_seed()
    with replayable(seed):
        outcome = asyncio.run(OnceRun(folder, seed, idempotent=idempotent, messages=messages).run())
    kind = "idempotent" if idempotent else "ordinary"
    rounds.summaries.append(f"sends of {kind} producers under faults, seed {seed}: {outcome}")
    return outcome


@pytest.mark.slow
def test_each_value_of_an_idempotent_producer_is_stored_once_and_in_order(folder: Path) -> None:
    messages = _NIGHTLY_MESSAGES if NIGHTLY else _MESSAGES
    outcome = run(folder, idempotent=True, messages=messages)
    assert (outcome.duplicates, outcome.missing, outcome.disordered) == (0, 0, 0)
    assert outcome.messages >= messages
    assert outcome.repeats, "there were no faults"


@pytest.mark.slow
def test_the_same_faults_let_ordinary_producers_store_values_twice(folder: Path) -> None:
    outcome = run(folder, idempotent=False, messages=_ORDINARY_MESSAGES)
    assert outcome.missing == 0
    assert outcome.duplicates > 0
