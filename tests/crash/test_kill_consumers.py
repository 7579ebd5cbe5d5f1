"""kill -9 of a consumer at every step of its work and of its retries, and of the broker meanwhile.

A round: messages are sent, with a delay and without one; a consumer that fails on some of them dies at each
step in turn; in some rounds the broker is killed too. In the end a consumer that lives does the rest. Then
every message was done after the right number of attempts or is a dead letter, each attempt has its count,
the first topic and the first id, none came before its time, and what was taken back is there once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from kourou.errors import KourouError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.message import MessageExt
from kourou.transport.client import RemotingClient
from tests.crash import numbered
from tests.crash.consumer_process import (
    DLQ_TOPIC,
    MAX_ATTEMPTS,
    RETRY_TOPIC,
    TOPICS,
    DyingConsumer,
    failures,
)
from tests.crash.delay_checks import assert_none_early, assert_none_waits, assert_store_with_levels_ok
from tests.crash.dying_client import Journal, Lives, Steps
from tests.crash.killed_broker import KilledBroker, live_until_death
from tests.crash.rounds import replayable, seeds
from tests.crash.stored_log import stored_records
from tests.e2e.broker.broker_kit import send_header

_SETTLE_S = 60.0
_LEVELS_MS = [1_000] * 5
_MESSAGES = 60
_RETRY_S = 1.5  # longer than a message waits to come again


class ConsumerKills:
    """One store over all rounds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.journal = Journal(folder / "journal")
        self.broker = KilledBroker(
            folder,
            messageDelayLevel="1s 1s 1s 1s 1s",
            flushConsumerOffsetInterval=200,
            flushDelayOffsetInterval=200,
        )
        self.sent = 0

    def run_round(self, seed: int) -> None:
        """A consumer dies at each step."""
        chance = random.Random(seed)
        asyncio.run(self._send(chance))
        has_whole_broker = chance.random() < 0.5
        self.journal.note("round")
        arguments = (self.broker.address, self._folder / "journal", seed)
        with Lives("tests.crash.consumer_process", self._folder, *arguments) as lives:
            if not has_whole_broker:
                self.journal.note("broker")
                self.journal.wait_longer()
                time.sleep(chance.uniform(0, 1.5))
                self.broker.kill()
                self.broker.start()
            lives.wait()

    async def run_life(self, step: str, seed: int) -> None:
        """The broker dies at a step, under a consumer that lives."""
        self.journal.note("round")
        self.journal.note("broker")
        consumer = DyingConsumer(self.broker.address, self.journal, Steps())
        await live_until_death(self.broker, step, consumer, self._send_till_death(random.Random(seed)))

    async def _send_till_death(self, chance: random.Random) -> None:
        with suppress(KourouError, OSError):
            await self._send(chance)

    async def _send(self, chance: random.Random) -> None:
        client = RemotingClient()
        try:
            for _ in range(_MESSAGES):
                await self._send_one(client, chance)
        finally:
            await client.stop()

    async def _send_one(self, client: RemotingClient, chance: random.Random) -> None:
        number, self.sent = self.sent, self.sent + 1
        delay = chance.choice(({}, {}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "300"}))
        header = send_header(numbered.TOPIC, numbered.property_text(number, **delay), flag=numbered.FLAG)
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, numbered.body(number))
        answer = await client.call(self.broker.address, command, 5_000)
        assert answer.code == 0, answer.remark
        self.journal.note("sent", number)

    # -- the end ---------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Consume the rest, then compare."""
        consumer = DyingConsumer(self.broker.address, self.journal, Steps())
        self.journal.note("round")
        good = {number for number in self.journal.numbers("sent") if failures(number) <= MAX_ATTEMPTS}
        async with asyncio.timeout(_SETTLE_S):
            while not (good <= self.journal.numbers("ok") and self._last_attempts_are_backed()):
                await self._consume_for(consumer, 0)
            await self._consume_for(consumer, _RETRY_S)
        await consumer.client.stop()
        self.broker.stop()
        assert_store_with_levels_ok(self.broker.store, _LEVELS_MS)
        records = [message for _, message in stored_records(self.broker.store)]
        self._check_attempts(records)
        self._check_backs(records)
        assert_none_early(records, _LEVELS_MS)
        assert_none_waits(records)
        check_progress(list(self.journal.lines()))

    async def _consume_for(self, consumer: DyingConsumer, seconds: float) -> None:
        """Until nothing has come for so long."""
        end, known = time.monotonic() + seconds, 0
        while True:
            for topic in TOPICS:
                await consumer.consume(topic)
            count = len(list(self.journal.lines()))
            if count == known and time.monotonic() >= end:
                return
            if count != known:
                end, known = time.monotonic() + seconds, count

    def _last_attempts_are_backed(self) -> bool:
        backed = {(int(line[1]), int(line[2])) for line in self.journal.lines() if line[0] == "backed"}
        bad = (number for number in self.journal.numbers("sent") if failures(number) > MAX_ATTEMPTS)
        return all((number, MAX_ATTEMPTS) in backed for number in bad)

    def _check_attempts(self, records: list[MessageExt]) -> None:
        """Counts go up from 0 without a gap, and each attempt is the message that was sent."""
        first = {numbered.number_of(record): record for record in records if record.topic == numbered.TOPIC}
        assert len(first) == sum(record.topic == numbered.TOPIC for record in records), "stored twice"
        assert not self.journal.numbers("sent") - first.keys(), "lost"
        seen: dict[int, set[int]] = {number: {0} for number in first}
        for record in records:
            if record.topic not in (*TOPICS, DLQ_TOPIC):
                continue
            numbered.assert_as_sent(record)
            number = numbered.number_of(record)
            if record.topic == numbered.TOPIC:
                continue
            assert record.properties["RETRY_TOPIC"] == numbered.TOPIC
            assert record.properties["ORIGIN_MESSAGE_ID"] == first[number].offset_msg_id
            assert (record.topic == DLQ_TOPIC) == (record.reconsume_times == MAX_ATTEMPTS + 1)
            seen[number].add(record.reconsume_times)
        for number, counts in seen.items():
            assert counts == set(range(failures(number) + 1)), f"{number} has the attempts {counts}"
        for line in self.journal.lines():
            assert line[0] != "ok" or int(line[2]) == failures(int(line[1])), line

    def _check_backs(self, records: list[MessageExt]) -> None:
        """What was taken back is there once for each time; what was not acknowledged may be there once."""
        lines = list(self.journal.lines())
        asked = Counter((int(line[1]), int(line[2]) + 1) for line in lines if line[0] == "back")
        taken = Counter((int(line[1]), int(line[2]) + 1) for line in lines if line[0] == "backed")
        found = Counter(
            (numbered.number_of(record), record.reconsume_times)
            for record in records
            if record.topic in (RETRY_TOPIC, DLQ_TOPIC)
        )
        for attempt in asked | found:
            assert taken[attempt] <= found[attempt] <= asked[attempt], (
                f"{attempt}: sent back {asked[attempt]} times, taken {taken[attempt]}, found {found[attempt]}"
            )


def check_progress(lines: list[list[str]]) -> None:
    """While the broker lives, what was committed is not delivered again to any consumer."""
    committed: dict[str, int] = {}
    is_whole = True
    for line in lines:
        if line[0] == "round":
            committed, is_whole = {}, True
        elif line[0] == "broker":
            is_whole = False
        elif line[0] == "acked":
            committed[line[1]] = int(line[2])
        elif line[0] == "got" and is_whole:
            assert int(line[4]) >= committed.get(line[3], 0), f"{line} comes again"


def kill_rounds(folder: Path, *, seconds: float, full: int) -> None:
    kills = ConsumerKills(folder)
    kills.broker.start()
    for seed in seeds("kill -9 of consumers at each step", seconds=seconds, full=full):
        with replayable(seed):
            kills.run_round(seed)
    asyncio.run(kills.settle())


@pytest.mark.slow
def test_attempts_count_right_whenever_consumers_are_killed(tmp_path: Path) -> None:
    kill_rounds(tmp_path, seconds=10, full=60)
