"""kill -9 of a broker that drops messages and puts them to dead letters, at any moment.

Afterwards each message that was acknowledged is there, or was dropped and counted: the counts are those of
the floors. Of the policy `dead-letter` each one is there or among the dead letters; none is in neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from itertools import count
from pathlib import Path
from typing import Any

from kourou.errors import RemotingError
from kourou.protocol.bodies import SubscriptionGroupConfig, encode_body
from kourou.protocol.bodies.overflow import OverflowState, TopicOverflow
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import UpdateConsumerOffsetRequestHeader
from kourou.protocol.headers.pull import PullMessageResponseHeader
from kourou.protocol.headers.topics import CreateTopicRequestHeader
from kourou.protocol.record import decode_records
from kourou.testing.store_check import assert_store_ok
from kourou.transport.client import RemotingClient
from tests.crash.killed_broker import KilledBroker
from tests.e2e.broker.broker_kit import pull_header, send_header

GROUP, LIMIT, KILLS, SENDERS = "consumers", 60, 4, 16
POLICIES = {"Dropped": "drop-oldest", "Buried": "dead-letter"}


class Lives:
    """One broker over its lives, and what it has acknowledged."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.broker = KilledBroker(folder)
        self.numbers = count()
        self.acknowledged: dict[str, list[int]] = {topic: [] for topic in POLICIES}
        self.client = RemotingClient()

    async def call(self, code: int, header: Any = None, body: bytes = b"") -> RemotingCommand:
        return await self.client.call(
            self.broker.address, RemotingCommand.request(code, header, body), timeout_ms=10_000
        )

    async def set_up(self) -> None:
        """Topics, the group, and where it is: what was not on disk is lost with a life."""
        group = encode_body(SubscriptionGroupConfig(group_name=GROUP))
        assert (await self.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)).code == 0
        for topic, policy in POLICIES.items():
            made = CreateTopicRequestHeader(
                topic=topic,
                default_topic="TBW102",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=6,
                topic_filter_type="SINGLE_TAG",
                topic_sys_flag=0,
                order=False,
                attributes=f"+overflow.policy={policy},+overflow.messages={LIMIT}",
            )
            assert (await self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, made)).code == 0
            begin = UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP, topic=topic, queue_id=0, commit_offset=0
            )
            assert (await self.call(RequestCode.UPDATE_CONSUMER_OFFSET, begin)).code == 0

    async def live_and_die(self) -> None:
        """Send until the broker is killed."""
        await self.set_up()
        sending = [asyncio.ensure_future(self._send()) for _ in range(SENDERS)]
        await asyncio.sleep(self.chance.uniform(0.1, 0.6))
        await asyncio.to_thread(self.broker.kill)
        await asyncio.gather(*sending)

    async def _send(self) -> None:
        with contextlib.suppress(RemotingError):
            for number in self.numbers:
                topic = sorted(POLICIES)[number % len(POLICIES)]
                answer = await self.call(RequestCode.SEND_MESSAGE_V2, send_header(topic), b"%d" % number)
                assert answer.code == 0, answer
                self.acknowledged[topic].append(number)

    async def states(self) -> dict[str, TopicOverflow]:
        answer = await self.call(RequestCode.GET_KOUROU_OVERFLOW)
        return {state.topic: state for state in OverflowState.decode(answer.body).topics}

    async def settle(self) -> None:
        """Wait until no backlog is over its limit."""
        async with asyncio.timeout(20):
            while True:
                states = (await self.states()).values()
                if all(state.slowest_group and state.messages <= LIMIT for state in states):
                    return
                await asyncio.sleep(0.05)

    async def read(self, topic: str, group: str) -> tuple[int, list[int]]:
        """Where a group begins, and the numbers that it gets."""
        found: list[int] = []
        begin = queue_offset = 0
        while True:
            header = pull_header(topic, queue_offset, consumer_group=group, suspend_timeout_millis=0)
            answer = await self.call(RequestCode.PULL_MESSAGE, header)
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                return begin, found
            queue_offset = answer.header(PullMessageResponseHeader).next_begin_offset
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                begin = queue_offset
            else:
                found += [int(message.body) for message in decode_records(answer.body)]


async def test_after_any_kill_each_message_is_there_or_dropped_and_counted(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    lives = Lives(tmp_path, seed)
    for _ in range(KILLS):
        await asyncio.to_thread(lives.broker.start)
        await lives.live_and_die()
    await asyncio.to_thread(lives.broker.start)
    await lives.set_up()
    await lives.settle()
    states = await lives.states()
    counts = {topic: state.groups[0] for topic, state in states.items()}

    floor, left = await lives.read("Dropped", GROUP)
    _, every = await lives.read("Dropped", "operators")
    assert (counts["Dropped"].dropped, counts["Dropped"].dead_lettered) == (floor, 0)
    assert floor > 0 and left == every[floor:], "the newest, and no others"
    assert set(lives.acknowledged["Dropped"]) <= set(every), "the records of what was dropped stay"

    floor, left = await lives.read("Buried", GROUP)
    _, dead = await lives.read(f"%DLQ%{GROUP}", "operators")
    assert (counts["Buried"].dropped, counts["Buried"].dead_lettered) == (0, floor)
    assert set(lives.acknowledged["Buried"]) <= {*left, *dead}, "lost"
    assert len(dead) <= floor + KILLS * 256, "at most a round of copies comes twice for each kill"
    await lives.client.stop()
    await asyncio.to_thread(lives.broker.stop)
    assert_store_ok(lives.broker.store)
