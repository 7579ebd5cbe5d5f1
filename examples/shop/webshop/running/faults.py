"""Faults: processes of a running shop are killed and stopped at random, and at every kill point.

What is done, and to which process, follows from the seed; what the process does at that moment does not. The
supervisor restarts what has died.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from webshop.kit.kill_points import KillPoint, arm, disarm, is_hit
from webshop.running.supervisor import BASE, State, Supervised, Supervisor, SupervisorError

_NOT: Final = frozenset({"gateway", "buyers", "spark"})
"""Not part of an order's life."""
_OFTEN: Final = {"broker": 2, "postgres": 2, "relay": 2}
_FREEZE_SHARE: Final = 0.15
_FREEZE_S: Final = (0.2, 2.0)
_WORK_SHARE: Final = 2.0
"""A process works for so many times the slowest start of all, before its next fault at random."""
_AT_ONCE: Final = 3
"""Processes that are restarting, or will be soon because of a point that is armed."""
_COMMON_S: Final = 3.0
"""A point that is not reached in this time is a rare one; it stays armed beside the others."""
_LOOK_S: Final = 0.1


class Faults:
    """Faults in a shop, from `run` until it is cancelled."""

    def __init__(self, supervisor: Supervisor, points: Path, *, seed: int, pause_s: float) -> None:
        self.kills: Counter[str] = Counter()
        self.freezes: Counter[str] = Counter()
        self._supervisor = supervisor
        self._points = points
        self._pause_s = pause_s
        self._chance = random.Random(f"faults/{seed}")
        self._order = list(KillPoint)
        random.Random(f"points/{seed}").shuffle(self._order)

    @property
    def missed(self) -> list[KillPoint]:
        """The points where no process has died yet."""
        return [point for point in KillPoint if not is_hit(self._points, point)]

    async def run(self) -> None:
        """Inject faults until cancelled; then everything runs again, and no point is armed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._at_random(), name="faults-at-random")
                tasks.create_task(self._at_points(), name="faults-at-points")
        finally:
            for point in KillPoint:
                disarm(self._points, point)
            for process in self._supervisor.processes.values():
                if process.state is State.STOPPED:
                    process.unfreeze()

    async def _at_random(self) -> None:
        for name, freeze_s in self._plan():
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
            while not self._has_worked(self._supervisor.find(name)):  # noqa: ASYNC110  another process
                await asyncio.sleep(_LOOK_S)
            with suppress(SupervisorError):
                await (self._freeze(name, freeze_s) if freeze_s else self._kill(name))

    def _plan(self) -> Iterator[tuple[str, float]]:
        """Which process, and for how long it is stopped; 0: it is killed. Broker and database, which have no
        kill points, are killed first."""
        yield from ((name, 0.0) for name in self._chance.sample(BASE, len(BASE)))
        names = [name for name in self._supervisor.processes if name not in _NOT]
        while True:
            [name] = self._chance.choices(names, [_OFTEN.get(name, 1) for name in names])
            is_freeze = self._chance.random() < _FREEZE_SHARE
            yield name, self._chance.uniform(*_FREEZE_S) if is_freeze else 0.0

    def _has_worked(self, process: Supervised) -> bool:
        """Whether it has done something since its last fault: a database that is killed when its clients
        have just connected again would keep all waiting. How long that takes depends on the machine."""
        lived_s = (datetime.now(UTC) - process.since).total_seconds()
        slowest_s = max(each.start_took_s for each in self._supervisor.processes.values())
        return process.state is State.RUNNING and lived_s > _WORK_SHARE * slowest_s

    async def _kill(self, name: str) -> None:
        self._supervisor.find(name).kill()
        self.kills[name] += 1

    async def _freeze(self, name: str, seconds: float) -> None:
        process = self._supervisor.find(name)
        process.freeze()
        self.freezes[name] += 1
        await asyncio.sleep(seconds)
        process.unfreeze()

    async def _at_points(self) -> None:
        """Arm one point after the other, a few at a time."""
        loop = asyncio.get_running_loop()
        armed: dict[KillPoint, float] = {}
        for point in self._order:
            while len(armed) + self._restarting() >= _AT_ONCE:
                await asyncio.sleep(_LOOK_S)
                now = loop.time()
                armed = {
                    each: since
                    for each, since in armed.items()
                    if not is_hit(self._points, each) and now - since < _COMMON_S
                }
            if not is_hit(self._points, point):
                arm(self._points, point)
                armed[point] = loop.time()

    def _restarting(self) -> int:
        states = [process.state for process in self._supervisor.processes.values()]
        return sum(state in (State.STARTING, State.RESTARTING) for state in states)
