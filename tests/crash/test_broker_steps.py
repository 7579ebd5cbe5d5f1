"""kill -9 of a broker at every step that it does with its files, of transactions, delays and retries.

The broker kills itself (dying_broker.py): before a write, in the middle of it, or when it is done but not yet
acknowledged. The first writes to the log are, in some order, the halves, the ends with their op records, the
copies of halves that were asked for; the messages that wait and the deliveries; the messages sent back. The
other steps are those in which progress is noted. Round after round on one store, each recovers from the one
before; what has to hold in the end is said in the tests whose parts are used here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.rounds import NIGHTLY, replayable, seeds
from tests.crash.test_delay_kill import DelayKill
from tests.crash.test_kill_consumers import ConsumerKills
from tests.crash.test_kill_producers import ProducerKills

_LOG_STEPS = [
    f"write:commitlog:{nth}:{moment}"
    for nth in (1, 2, 3, 4, 5, 6, 7, 8, 12, 20)
    for moment in ("before", "torn", "after")
]


def _note_steps(name: str) -> list[str]:
    """The steps of a small file that is replaced as a whole."""
    kinds = ("create", "write", "sync", "rename")
    return [
        f"{kind}:{name}:{nth}:{moment}" for kind in kinds for nth in (1, 2) for moment in ("before", "after")
    ]


def _steps_in_place(name: str) -> list[str]:
    """The steps of a file that is written where it is."""
    writes = [f"write:{name}:{nth}:{moment}" for nth in (1, 2) for moment in ("before", "torn", "after")]
    return [*writes, f"sync:{name}:1:before", f"sync:{name}:1:after"]


TRANSACTION_STEPS = _LOG_STEPS + _note_steps("consumerOffset.json")
DELAY_STEPS = [
    *_LOG_STEPS,
    *_note_steps("delayOffset.json"),
    *_steps_in_place("timerlog"),
    *_steps_in_place("timerwheel"),
    *_steps_in_place("timercheck"),
]
RETRY_STEPS = _LOG_STEPS + _note_steps("consumerOffset.json") + _note_steps("delayOffset.json")


_STRIDE = 17  # prime


def step_of(steps: list[str], seed: int) -> str:
    """Seeds that follow each other walk over all steps, with a stride: the first few are spread over them."""
    assert len(steps) % _STRIDE, "some steps would have no turn"
    return steps[seed * _STRIDE % len(steps)]


def transaction_lives(folder: Path, *, seconds: float, full: int) -> None:
    kills = ProducerKills(folder)
    for seed in seeds("kill -9 at a step of transactions", seconds=seconds, full=full):
        step = step_of(TRANSACTION_STEPS, seed)
        with replayable(seed, step=step):
            asyncio.run(kills.run_life(step, seed))
    kills.broker.start()
    asyncio.run(kills.settle())


def retry_lives(folder: Path, *, seconds: float, full: int) -> None:
    kills = ConsumerKills(folder)
    for seed in seeds("kill -9 at a step of retries", seconds=seconds, full=full):
        step = step_of(RETRY_STEPS, seed)
        with replayable(seed, step=step):
            asyncio.run(kills.run_life(step, seed))
    kills.broker.start()
    asyncio.run(kills.settle())


def delay_lives(folder: Path, *, seconds: float, full: int) -> None:
    kill = DelayKill(folder, 0)
    for life, seed in enumerate(seeds("kill -9 at a step of delays", seconds=seconds, full=full)):
        step = step_of(DELAY_STEPS, seed)
        with replayable(seed, step=step):
            asyncio.run(kill.run_life(step, seed, life))
    kill.settle()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lives", "steps"),
    [
        (transaction_lives, len(TRANSACTION_STEPS)),
        (delay_lives, len(DELAY_STEPS)),
        (retry_lives, len(RETRY_STEPS)),
    ],
)
def test_a_broker_killed_at_every_step_keeps_its_promises(
    lives: Callable[..., None], steps: int, tmp_path: Path
) -> None:
    lives(tmp_path, seconds=10, full=3 * steps if NIGHTLY else steps)
