"""consumer_process: a consumer that is killed at a step, comes back, and is killed at the next one.

    python -m tests.crash.consumer_process ADDRESS JOURNAL SEED

It reads the topic and the retry topic of its group from where it left off, fails on some messages so
that they are sent back, and commits its progress after each message. What it notes, where A is the
message's count of attempts (reconsumeTimes) and P the place of its record:

    got N A TOPIC QUEUE_OFFSET      pulled
    ok N A                          done with it
    back N A P                      about to send it back
    backed N A P                    the broker has taken it back
    acked TOPIC QUEUE_OFFSET        the broker has the progress
"""

from __future__ import annotations

import asyncio
import random
import sys
from functools import partial
from pathlib import Path

from kourou.errors import KourouError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient
from tests.crash import numbered
from tests.crash.dying_client import Journal, Steps, live, wait_killed
from tests.e2e.broker.broker_kit import SUBSCRIPTION, SUSPEND, pull_header

GROUP = "consumers"
RETRY_TOPIC, DLQ_TOPIC = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
TOPICS = (numbered.TOPIC, RETRY_TOPIC)
MAX_ATTEMPTS = 2

STEPS = ("held", "got", "consumed", "acking", "acked", "failed", "backing", "backed", "moved on")
"""A pull waits; a message is there; it is done; its progress is under way, is taken; it failed, sending it
back is under way, is done; and progress beyond it is taken."""

_HOLD_MS = 100
_MOMENT_MS = 4
_LIFE_S = 30


def failures(number: int) -> int:
    """How often the consumer fails on a message; more than MAX_ATTEMPTS: until it is a dead letter."""
    return number % (MAX_ATTEMPTS + 2)


class DyingConsumer:
    """One life, of a group with one member."""

    def __init__(self, address: str, journal: Journal, steps: Steps) -> None:
        self._address = address
        self._journal = journal
        self._steps = steps
        self.client = RemotingClient()

    async def run(self) -> None:
        """Until death; a broker that is gone comes back."""
        async with asyncio.timeout(_LIFE_S):
            while True:
                try:
                    for topic in TOPICS:
                        await self.consume(topic)
                except (KourouError, OSError):
                    await asyncio.sleep(0.02)

    async def consume(self, topic: str) -> None:
        """Pull once from where the group is, and see to each message."""
        for message in await self._pull(topic, await self._progress(topic)):
            words = numbered.number_of(message), message.reconsume_times
            self._journal.note("got", *words, topic, message.queue_offset)
            await self._steps.at("got")
            is_failed = message.reconsume_times < failures(words[0])
            if is_failed:
                await self._steps.at("failed")
                await self._send_back(message)
                await self._steps.at("backed")
            else:
                self._journal.note("ok", *words)
                await self._steps.at("consumed")
            await self._ack(topic, message.queue_offset + 1)
            await self._steps.at("moved on" if is_failed else "acked")

    async def _call(self, code: int, header: object) -> RemotingCommand:
        return await self.client.call(self._address, RemotingCommand.request(code, header), 5_000)  # type: ignore[arg-type]

    async def _progress(self, topic: str) -> int:
        header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=topic, queue_id=0)
        answer = await self._call(RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        return answer.header(QueryConsumerOffsetResponseHeader).consumer_offset

    async def _pull(self, topic: str, queue_offset: int) -> list[MessageExt]:
        header = pull_header(
            topic, queue_offset, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=_HOLD_MS
        )
        pulled = asyncio.ensure_future(self._call(RequestCode.PULL_MESSAGE, header))
        await self._steps.at("held", within_ms=_HOLD_MS)
        answer = await pulled
        return decode_records(answer.body) if answer.code == 0 else []

    async def _send_back(self, message: MessageExt) -> None:
        words = numbered.number_of(message), message.reconsume_times, message.phy_offset
        header = ConsumerSendMsgBackRequestHeader(
            phy_offset=message.phy_offset,
            group=GROUP,
            delay_level=0,
            origin_msg_id=message.msg_id,
            origin_topic=message.properties.get("RETRY_TOPIC", message.topic),
            max_reconsume_times=MAX_ATTEMPTS,
        )
        self._journal.note("back", *words)
        sent = asyncio.ensure_future(self._call(RequestCode.CONSUMER_SEND_MSG_BACK, header))
        await self._steps.at("backing", within_ms=_MOMENT_MS)
        answer = await sent
        assert answer.code == 0, answer.remark
        self._journal.note("backed", *words)

    async def _ack(self, topic: str, queue_offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=topic, queue_id=0, commit_offset=queue_offset
        )
        sent = asyncio.ensure_future(self._call(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        await self._steps.at("acking", within_ms=_MOMENT_MS)
        assert (await sent).code == 0
        self._journal.note("acked", topic, queue_offset)


async def _life(address: str, journal: Path, step: str, seed: str) -> None:
    chance = random.Random(seed)
    steps = Steps(step, chance.randint(1, 3), chance.randrange(1 << 32))
    await DyingConsumer(address, Journal(journal), steps).run()


def main() -> None:
    """Entry point: a life for each step, one after the other."""
    address, journal, seed = sys.argv[1:]
    for step in random.Random(seed).sample(STEPS, len(STEPS)):
        child = live(partial(_life, address, Path(journal), step, f"{seed} {step}"))
        wait_killed(child, f"the consumer that dies when {step}")


if __name__ == "__main__":
    main()
