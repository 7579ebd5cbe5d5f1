"""kill -9 of transactional producers at every step of their transactions, and of the broker meanwhile.

A round has one producer process for each step; all are of one group, so that each may be asked for the
transactions of the others. In some rounds the broker is killed too, at some moment. In the end a producer
that lives answers what is open, from the journals of the dead: what they had decided holds, and what they
had not decided is rolled back. Then consumers see every committed message, once, exactly as it was sent,
and nothing else.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import QueryMessageRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.testing.store_check import assert_store_ok
from tests.crash import numbered
from tests.crash.dying_client import Journal, Lives, Steps
from tests.crash.killed_broker import live_until_death
from tests.crash.rounds import replayable, seeds
from tests.crash.test_kill_transactions import killed_broker
from tests.crash.transaction_process import NUMBERS, STEPS, DyingProducer
from tests.e2e.broker.broker_kit import pull_header
from tests.e2e.broker.transaction_kit import COMMIT, ROLLBACK, TransactionProducer

_SETTLE_S = 60.0
_CALL_MS = 20_000  # what is no longer in memory comes from a disk that other fault loops sync all the time


class ProducerKills:
    """One store over all rounds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rounds = 0
        self.journal = Journal(folder / "journal")
        self.broker = killed_broker(folder)

    def run_round(self, seed: int) -> None:
        """A producer dies at each step."""
        chance = random.Random(seed)
        self._rounds += 1
        first = self._rounds * len(STEPS) * NUMBERS
        arguments = (self.broker.address, self._folder / "journal", first, seed)
        with Lives("tests.crash.transaction_process", self._folder, *arguments) as lives:
            if chance.random() < 0.5:
                self.journal.wait_longer()
                time.sleep(chance.uniform(0, 0.3))
                self.broker.kill()
                self.broker.start()
            lives.wait()

    async def run_life(self, step: str, seed: int) -> None:
        """The broker dies at a step, under a producer that lives."""
        self._rounds += 1
        numbers = count(self._rounds * len(STEPS) * NUMBERS)
        producer = DyingProducer(self.broker.address, self.journal, Steps(), numbers, seed)
        await live_until_death(self.broker, step, producer)

    # -- the end ---------------------------------------------------------------------------------

    def wanted(self) -> set[int]:
        """What consumers have to see."""
        return {
            int(line[1]) for line in self.journal.lines() if line[0] == "local" and int(line[2]) == COMMIT
        }

    async def settle(self) -> None:
        """Answer what is open, then compare."""
        producer = TransactionProducer(self.broker.address, client_id="survivor")
        # The broker repeats hundreds of checks every 100 ms: to read the journal for each takes longer.
        ends = {int(line[1]): int(line[2]) for line in self.journal.lines() if line[0] == "local"}
        producer.decide = lambda message: ends.get(numbered.number_of(message), ROLLBACK)
        await producer.heartbeat()
        wanted = self.wanted()
        async with asyncio.timeout(_SETTLE_S):
            seen: set[int] = set()
            while not wanted <= seen:
                seen = {numbered.number_of(message) for message in await visible(producer)}
                await asyncio.sleep(0.1)
            with suppress(TimeoutError):  # as long as there are checks, something is open
                while True:
                    await producer.next_check(timeout_s=1)
        self._compare(await visible(producer), wanted)
        for number in wanted:
            assert await found_by_key(producer, number) == [number]
        await producer.client.stop()
        self.broker.stop()
        assert_store_ok(self.broker.store)

    def _compare(self, found: list[MessageExt], wanted: set[int]) -> None:
        times = Counter(map(numbered.number_of, found))
        assert not [number for number, count in times.items() if count > 1], "committed twice"
        assert not times.keys() - wanted, "seen without having been committed"
        assert not wanted - times.keys(), "committed and lost"
        for message in found:
            numbered.assert_as_sent(message)


async def visible(producer: TransactionProducer) -> list[MessageExt]:
    """All messages of the topic."""
    found: list[MessageExt] = []
    while True:
        header = pull_header(numbered.TOPIC, len(found), suspend_timeout_millis=0)
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await producer.client.call(producer.address, command, _CALL_MS)
        if answer.code != 0:
            return found
        found += decode_records(answer.body)


async def found_by_key(producer: TransactionProducer, number: int) -> list[int]:
    """The messages of the topic that have the key of a number."""
    header = QueryMessageRequestHeader(
        topic=numbered.TOPIC, key=numbered.key(number), max_num=32, begin_timestamp=0, end_timestamp=1 << 60
    )
    command = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header)
    answer = await producer.client.call(producer.address, command, _CALL_MS)
    assert answer.code == 0, answer.remark
    return [numbered.number_of(message) for message in decode_records(answer.body)]


def kill_rounds(folder: Path, *, seconds: float, full: int) -> None:
    kills = ProducerKills(folder)
    kills.broker.start()
    for seed in seeds("kill -9 of producers at each step", seconds=seconds, full=full):
        with replayable(seed):
            kills.run_round(seed)
    asyncio.run(kills.settle())
    assert kills.wanted()


@pytest.mark.slow
def test_transactions_end_as_decided_whenever_producers_are_killed(tmp_path: Path) -> None:
    kill_rounds(tmp_path, seconds=10, full=100)
