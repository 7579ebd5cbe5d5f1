"""Power loss over a simulated disk under async flush: no transaction has two outcomes, none gets lost.

What was not flushed may be gone, so an end may be undone. But a transaction whose half is still there
is either open, once, or has ended, once; and the noted progress never hides one that is open.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from kourou.protocol.message import MessageExt
from kourou.testing.faulty_files import FaultyFiles
from tests.crash.rounds import NIGHTLY, each_round
from tests.unit.broker.half_kit import TIMEOUT_MS, HalfBroker
from tests.unit.store.message_stores import faulty


class Life:
    """Transactions by their body. Those in `undone` were rolled back, the others never are."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.broker = HalfBroker(root, transaction_check_max=1_000_000)
        self.sent = 0
        self.undone: set[bytes] = set()

    async def run(self, steps: int) -> None:
        """Do at random what producers, the broker and its disk do."""
        deeds = [self.send, self.send, self.end, self.end, self.check, self.flush, self.note]
        for _ in range(steps):
            await self.chance.choice(deeds)()

    async def send(self) -> None:
        self.sent += 1
        self.broker.put_half(b"%d" % self.sent, f"TX{self.sent}")
        self.broker.pass_ms(self.chance.randrange(TIMEOUT_MS))

    async def end(self) -> None:
        half = self._some_open()
        if half is None:
            return
        if self.chance.random() < 0.5:
            self.broker.transactions.commit(half, None)
        else:
            self.undone.add(half.stored_body)
            self.broker.transactions.roll_back(half, None)
        if self.chance.random() < 0.7:
            self.broker.cycles.close()

    def _some_open(self) -> MessageExt | None:
        self.broker.cycles.close()
        is_open = set(self.broker.open_halves())
        halves = [half for half in self.broker.halves() if half.queue_offset in is_open]
        return self.chance.choice(halves) if halves else None

    async def check(self) -> None:
        await self.broker.check()

    async def flush(self) -> None:
        self.broker.cycles.close()
        self.broker.store.flush()

    async def note(self) -> None:
        self.broker.offsets.persist()

    def lose_power(self) -> None:
        """All that is not on disk may go, the noted progress excepted; then start again."""
        broker = self.broker
        files = faulty(broker.store_kit)
        assert isinstance(files, FaultyFiles)
        files.crash(self.chance.randrange(1 << 32))
        broker.store.abandon()
        broker.offsets.offset_table.clear()
        broker.offsets.load()
        broker.store = broker.store_kit.open(read_window_bytes=0)
        broker._serve()

    def settle(self) -> None:
        """Compare."""
        broker = self.broker
        is_open = set(broker.open_halves())
        begun = {half.stored_body for half in broker.halves()}
        still_open = Counter(half.stored_body for half in broker.halves() if half.queue_offset in is_open)
        committed = Counter(broker.visible())
        for body in begun:
            outcomes = still_open[body] + committed[body]
            assert outcomes <= 1, f"{body!r}: {still_open[body]} open, {committed[body]} committed"
            assert outcomes == 1 or body in self.undone, f"{body!r} got lost"


async def live_and_die(root: Path, seed: int) -> None:
    life = Life(root, seed)
    try:
        for _ in range(4):
            await life.run(40)
            life.lose_power()
            life.settle()
    finally:
        await life.broker.close()


def test_one_outcome_whenever_the_power_goes(folder: Path) -> None:
    each_round(
        "power loss with transactions",
        lambda seed: asyncio.run(live_and_die(folder / str(seed), seed)),
        seconds=2,
        full=500 if NIGHTLY else 60,
    )
