"""kill -9 of a broker process while transactions begin, end, are asked for and given up.

A producer sends halves and ends some of them at once, one-way as clients do; the others, and those
whose end got lost, the broker asks for. It is killed at some moment and started again, on the same
store, round after round. In the end every transaction that was begun has the one outcome that its
producer decided on: committed, it is there once; rolled back, it never was; and no half is open.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from kourou.errors import RemotingError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.testing.store_check import assert_store_ok
from tests.crash.killed_broker import KilledBroker
from tests.crash.rounds import replayable, seeds
from tests.e2e.broker.broker_kit import pull_header
from tests.e2e.broker.transaction_kit import COMMIT, ROLLBACK, TransactionProducer, now_ms

_SETTLE_S = 30.0


def killed_broker(folder: Path) -> KilledBroker:
    return KilledBroker(
        folder,
        transactionTimeOut=100,
        transactionCheckInterval=50,
        transactionCheckMax=10_000,  # a producer that comes late is still asked
        flushConsumerOffsetInterval=100,
    )


class Story:
    """What the producers decided, and what they know was begun. The number is in the body."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.decided: dict[bytes, int] = {}
        self.begun: set[bytes] = set()

    def new(self) -> bytes:
        body = b"%d" % len(self.decided)
        self.decided[body] = self._chance.choice((COMMIT, ROLLBACK))
        return body

    def answer(self, message: MessageExt) -> int:
        return self.decided[message.body]


async def produce(producer: TransactionProducer, story: Story, chance: random.Random) -> None:
    """Begin transactions and end every other one, until the broker is gone."""
    with suppress(RemotingError, OSError):
        await producer.heartbeat()
        while True:
            body = story.new()
            half = await producer.half(body, f"TX{body.decode()}", queue_id=0, born_timestamp=now_ms())
            story.begun.add(body)
            if chance.random() < 0.6:
                await producer.end_oneway(half, story.decided[body])
            if chance.random() < 0.1:
                await asyncio.sleep(0.01)


async def run_and_kill(broker: KilledBroker, story: Story, chance: random.Random) -> None:
    """One life of the broker, with two producers of one group."""
    await asyncio.to_thread(broker.start)
    producers = [TransactionProducer(broker.address, client_id) for client_id in ("c1", "c2")]
    for producer in producers:
        producer.decide = story.answer
    works = [asyncio.ensure_future(produce(producer, story, chance)) for producer in producers]
    await asyncio.sleep(chance.uniform(0.02, 0.6))
    await asyncio.to_thread(broker.kill)
    await asyncio.wait(works)
    for producer in producers:
        await producer.client.stop()
    for work in works:
        work.result()


async def consume(producer: TransactionProducer) -> list[bytes]:
    """Everything that consumers can see."""
    bodies: list[bytes] = []
    while True:
        header = pull_header("TopicTest", len(bodies), suspend_timeout_millis=0)
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await producer.client.call(producer.address, command, 5_000)
        found = [message.body for message in decode_records(answer.body)] if answer.code == 0 else []
        bodies += found
        if not found:
            assert answer.header(PullMessageResponseHeader).max_offset == len(bodies)
            return bodies


async def _until_nobody_is_asked(producer: TransactionProducer) -> None:
    """As long as there are checks, something is open: a half is checked twenty times a second."""
    with suppress(TimeoutError):
        while True:
            await producer.next_check(timeout_s=1)


async def settle(broker: KilledBroker, story: Story) -> None:
    """The last life: let the broker ask for what is open, then compare."""
    await asyncio.to_thread(broker.start)
    producer = TransactionProducer(broker.address)
    producer.decide = story.answer
    await producer.heartbeat()
    wanted = {body for body in story.begun if story.decided[body] == COMMIT}
    async with asyncio.timeout(_SETTLE_S):
        while not wanted <= set(await consume(producer)):  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.1)
        await _until_nobody_is_asked(producer)
    bodies = await consume(producer)
    await producer.client.stop()
    await asyncio.to_thread(broker.stop)
    twice = [body for body, count in Counter(bodies).items() if count > 1]
    assert not twice, f"committed more than once: {twice}"
    undone = [body for body in bodies if story.decided[body] == ROLLBACK]
    assert not undone, f"rolled back and there all the same: {undone}"
    assert wanted <= set(bodies)
    assert_store_ok(broker.store)


def kill_rounds(folder: Path, *, seconds: float, full: int) -> None:
    broker = killed_broker(folder)
    story = Story(random.Random(0))
    for seed in seeds("kill -9 of a broker with transactions", seconds=seconds, full=full):
        with replayable(seed):
            asyncio.run(run_and_kill(broker, story, random.Random(seed)))
    asyncio.run(settle(broker, story))
    assert len(story.begun) > 10


@pytest.mark.slow
def test_every_transaction_has_one_outcome_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    kill_rounds(tmp_path, seconds=10, full=100)
