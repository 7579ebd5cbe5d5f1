"""kill -9 of a broker with messages that wait and messages that come due, and of those who send them: each
comes once, none early, all as they were sent.

One store over the lives of a round. A life: a broker starts, gets messages with delay levels and with times
from producers that are killed while they send, and is killed at some moment, mostly while it delivers. The
last broker delivers what is left.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.crash import numbered
from tests.crash.delay_checks import (
    assert_none_early,
    assert_none_waits,
    assert_store_with_levels_ok,
    deliveries,
)
from tests.crash.delay_process import LONGEST_MS, NUMBERS, STEPS, DyingSender
from tests.crash.dying_client import Journal, Lives, Steps
from tests.crash.killed_broker import KilledBroker, live_until_death
from tests.crash.rounds import replayable, seeds
from tests.crash.stored_log import stored_records

LEVELS_MS = (1_000, 2_000)
_LIVES = 3
# A timer is due at the end of its second.
_LAST_S = (max(*LEVELS_MS, LONGEST_MS) + 1_500) / 1000


class DelayKill:
    """The store of one round, and what was sent to it."""

    def __init__(self, root: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._root = root
        self.journal = Journal(root / "journal")
        self.broker = KilledBroker(
            root, messageDelayLevel="1s 2s", mappedFileSizeCommitLog=1024 * 1024, flushDelayOffsetInterval=500
        )

    def run(self) -> None:
        """Some lives, then compare."""
        for life in range(_LIVES):
            self.broker.start(flushDiskType=self._chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH")))
            self._send_and_kill(life)
        assert len(self.journal.numbers("sent")) > 50
        self.settle()

    async def run_life(self, step: str, seed: int, life: int) -> None:
        """The broker dies at a step, under a producer that lives."""
        numbers = count(life * NUMBERS)
        sender = DyingSender(self.broker.address, self.journal, Steps(), numbers, seed, pause_s=0.1)
        await live_until_death(self.broker, step, sender)

    def settle(self) -> None:
        """The last life delivers what is left; then compare."""
        self.broker.start()
        time.sleep(_LAST_S)  # whatever is due has come by then, and whatever comes twice
        self.broker.stop()
        self._compare()

    def _send_and_kill(self, life: int) -> None:
        first, seed = life * len(STEPS) * NUMBERS, self._chance.randrange(1 << 32)
        arguments = (self.broker.address, self._root / "journal", first, seed)
        with Lives("tests.crash.delay_process", self._root, *arguments) as lives:
            self.journal.wait_longer()
            time.sleep(self._chance.uniform(0, 0.4))  # they still send
            if self._chance.random() < 0.5:
                self.broker.kill()
                self.broker.start()
            lives.wait()
        time.sleep(self._chance.uniform(0, 2))  # what they sent comes due
        self.broker.kill()

    def _compare(self) -> None:
        records = [message for _, message in stored_records(self.broker.store)]
        sent, maybe_sent = self.journal.numbers("sent"), self.journal.numbers("sending")
        found = Counter(numbered.number_of(record) for _, record in deliveries(records))
        assert not sent - found.keys(), "lost"
        assert not {number: count for number, count in found.items() if count > 1}, "delivered twice"
        assert not found.keys() - maybe_sent
        for _, record in deliveries(records):
            numbered.assert_as_sent(record)
        assert_none_early(records, LEVELS_MS)
        assert_none_waits(records)
        assert_store_with_levels_ok(self.broker.store, LEVELS_MS)


@pytest.mark.slow
def test_delayed_messages_come_once_over_kills(tmp_path: Path) -> None:
    for seed in seeds("kill -9 with delayed messages", seconds=10, full=100):
        with replayable(seed):
            folder = tmp_path / str(seed)
            folder.mkdir()
            DelayKill(folder, seed).run()
