"""transaction_process: transactional producers, each killed at its own step.

    python -m tests.crash.transaction_process ADDRESS JOURNAL FIRST_NUMBER SEED

Each sends halves, does its local transactions (lines in the journal, which say commit or rollback), ends most
of them and leaves some to be asked for, until it dies. The journal of one number:

    sending N, begun N, local N 8|12
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from kourou.errors import KourouError
from kourou.protocol.message import MessageExt
from tests.crash import numbered
from tests.crash.dying_client import Journal, Steps, die_at_each
from tests.e2e.broker.transaction_kit import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer

STEPS = ("sending", "begun", "local", "ending", "ended", "asked", "answering", "answered")
"""Half under way, half answered, local transaction done, end under way, end done; asked by the broker,
answer under way, answer done."""

_MOMENT_MS = 4  # a request to this machine is on its way, taken, done or answered within that
_LIFE_S = 30
NUMBERS = 10_000
"""So many numbers are for one producer."""


class DyingProducer:
    """One life."""

    def __init__(
        self, address: str, journal: Journal, steps: Steps, numbers: Iterator[int], seed: int
    ) -> None:
        self._journal = journal
        self._steps = steps
        self._numbers = numbers
        self._chance = random.Random(seed)
        self._producer = TransactionProducer(address, client_id=f"producer-{seed}")
        self.client = self._producer.client

    async def run(self) -> None:
        """Until death; a broker that is gone comes back."""
        async with asyncio.timeout(_LIFE_S):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._answer_checks())
                while True:
                    try:
                        await self._producer.heartbeat()
                        await self._transact()
                    except (KourouError, OSError):
                        await asyncio.sleep(0.02)

    async def _transact(self) -> None:
        number, producer, steps = next(self._numbers), self._producer, self._steps
        self._journal.note("sending", number)
        text = numbered.property_text(number, without=("UNIQ_KEY", "TAGS"))
        sent = asyncio.ensure_future(
            producer.half(numbered.body(number), numbered.uniq_key(number), text, flag=numbered.FLAG)
        )
        await steps.at("sending", within_ms=_MOMENT_MS)
        half = await sent
        self._journal.note("begun", number)
        await steps.at("begun")
        end = self._chance.choice((COMMIT, COMMIT, ROLLBACK))
        self._journal.note("local", number, end)
        await steps.at("local")
        if self._chance.random() < 0.3:
            return  # its end gets lost: the broker will ask
        await producer.end_oneway(half, end)
        await steps.at("ending", within_ms=_MOMENT_MS)
        await producer.heartbeat()  # answered after what came before it
        await steps.at("ended")

    async def _answer_checks(self) -> None:
        while True:
            check = await self._producer.checks.get()
            await self._steps.at("asked")
            end = decided(self._journal, check.message, otherwise=UNKNOWN)
            try:
                await self._producer.end_oneway(check.half, end, from_transaction_check=True)
                await self._steps.at("answering", within_ms=_MOMENT_MS)
                await self._producer.heartbeat()
            except (KourouError, OSError):
                continue
            await self._steps.at("answered")


def decided(journal: Journal, message: MessageExt, *, otherwise: int) -> int:
    """What the local transaction of a message came to; `otherwise` when there is none."""
    number = numbered.number_of(message)
    ends = [int(line[2]) for line in journal.lines() if line[0] == "local" and int(line[1]) == number]
    return ends[0] if ends else otherwise


async def _life(address: str, journal: Path, step: str, first: int, seed: str) -> None:
    chance = random.Random(seed)
    steps = Steps(step, chance.randint(1, 4), chance.randrange(1 << 32))
    await DyingProducer(address, Journal(journal), steps, count(first), chance.randrange(1 << 32)).run()


if __name__ == "__main__":
    die_at_each(STEPS, NUMBERS, _life)
