"""delay_process: producers of delayed messages, each killed at its own step.

    python -m tests.crash.delay_process ADDRESS JOURNAL FIRST_NUMBER SEED

Half of the messages have a delay level, the others a time. The journal of one number: sending N, sent N.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from kourou.errors import KourouError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient
from tests.crash import numbered
from tests.crash.dying_client import Journal, Steps, die_at_each
from tests.e2e.broker.broker_kit import send_header

STEPS = ("sending", "sent")
NUMBERS = 100_000
"""So many numbers are for one producer."""

LONGEST_MS = 2_500
_MOMENT_MS = 4
_LIFE_S = 30


class DyingSender:
    """One life. `pause_s`: between two messages, so that the broker delivers in between."""

    def __init__(
        self,
        address: str,
        journal: Journal,
        steps: Steps,
        numbers: Iterator[int],
        seed: int,
        pause_s: float = 0,
    ) -> None:
        self._pause_s = pause_s
        self._address = address
        self._journal = journal
        self._steps = steps
        self._numbers = numbers
        self._chance = random.Random(seed)
        self.client = RemotingClient()

    async def run(self) -> None:
        """Until death; a broker that is gone comes back."""
        async with asyncio.timeout(_LIFE_S):
            while True:
                try:
                    await self._send(next(self._numbers))
                    await asyncio.sleep(self._pause_s)
                except (KourouError, OSError):
                    await asyncio.sleep(0.02)

    async def _send(self, number: int) -> None:
        text = numbered.property_text(number, **self._delay())
        header = send_header(numbered.TOPIC, text, flag=numbered.FLAG)
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, numbered.body(number))
        self._journal.note("sending", number)
        sent = asyncio.ensure_future(self.client.call(self._address, command, 3_000))
        await self._steps.at("sending", within_ms=_MOMENT_MS)
        answer = await sent
        assert answer.code == 0, answer.remark
        self._journal.note("sent", number)
        await self._steps.at("sent")

    def _delay(self) -> dict[str, str]:
        if self._chance.random() < 0.5:
            return {"DELAY": str(self._chance.choice((1, 2)))}
        ahead_ms = self._chance.randrange(500, LONGEST_MS)
        return {"TIMER_DELIVER_MS": str(time.time_ns() // 1_000_000 + ahead_ms)}


async def _life(address: str, journal: Path, step: str, first: int, seed: str) -> None:
    chance = random.Random(seed)
    steps = Steps(step, chance.randint(50, 400), chance.randrange(1 << 32))
    await DyingSender(address, Journal(journal), steps, count(first), chance.randrange(1 << 32)).run()


if __name__ == "__main__":
    die_at_each(STEPS, NUMBERS, _life)
