"""kill -9 of a broker while a program pops, acknowledges, prolongs and drops messages: each message is
handled, none comes again before its invisible time is over, and none that was acknowledged comes again."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from kourou.errors import KourouError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from kourou.protocol.pop.offset_infos import decode_offset_infos
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind, topic_of_kind
from kourou.protocol.record import decode_records
from kourou.testing.store_check import assert_store_ok
from kourou.transport.client import RemotingClient
from tests.crash.killed_broker import KilledBroker
from tests.crash.rounds import replayable, seeds
from tests.e2e.broker.broker_kit import send_header

TOPIC, GROUP = "TopicTest", "poppers"
INVISIBLE_MS = 1_500
_KILLS = 20
"""In one round."""
_ROUNDING_MS = 20
_TIMEOUT_MS = 3_000


class Popper:
    """What one program does, and what it knows of it. `handled`: it sent an ack; `acked`: that was answered,
    in time."""

    def __init__(self, address: str, seed: int, numbers: Iterator[int]) -> None:
        self._address = address
        self._chance = random.Random(seed)
        self._numbers = numbers
        self.client = RemotingClient()
        self.sent: set[int] = set()
        self.handled: set[int] = set()
        self.acked: set[int] = set()
        self.came_again: list[int] = []
        self.came_early: list[tuple[int, int]] = []
        self._visible_ms: dict[int, int] = {}
        """Before this a message may not come again: the end of its invisible time, as far as it is known."""
        self.popped: Counter[int] = Counter()

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        return await self.client.call(self._address, command, _TIMEOUT_MS)

    async def work(self, *, drops: bool) -> None:
        """Send and consume until cancelled; a broker that is gone comes back."""
        await asyncio.gather(self._until_cancelled(self.send), self._until_cancelled(self.pop, drops))

    async def _until_cancelled(self, deed: object, *arguments: object) -> None:
        while True:
            try:
                await deed(*arguments)  # type: ignore[operator]
                await asyncio.sleep(0.005)
            except (KourouError, OSError):
                await asyncio.sleep(0.02)

    async def send(self) -> None:
        number = next(self._numbers)
        header = send_header(TOPIC, f"UNIQ_KEY\x01ID{number}\x02", queue_id=number % 2)
        answer = await self.call(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number))
        if answer.code == 0:
            self.sent.add(number)

    async def pop(self, drops: bool = False) -> int:
        """Pop once, and do with each message what chance says; how many came."""
        now_ms = time.time_ns() // 1_000_000
        header = PopMessageRequestHeader(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=-1,
            max_msg_nums=8,
            invisible_time=INVISIBLE_MS,
            poll_time=200,
            born_time=now_ms,
            init_mode=0,
        )
        answer = await self.call(RemotingCommand.request(RequestCode.POP_MESSAGE, header))
        if answer.code != 0:
            return 0
        messages = list(decode_records(answer.body or b""))
        for message, handle in zip(messages, self._handles(answer), strict=True):
            number = int(message.body)
            self.popped[number] += 1
            if number in self.acked:
                self.came_again.append(number)
            early_ms = self._visible_ms.get(number, 0) - handle.pop_time
            if early_ms > _ROUNDING_MS:
                self.came_early.append((number, early_ms))
            self._visible_ms[number] = handle.visible_again_ms
            await self._handle(number, handle, drops)
        return len(messages)

    def _handles(self, answer: RemotingCommand) -> Iterator[ReceiptHandle]:
        header = answer.header(PopMessageResponseHeader)
        for kind, queue_id, start, offsets in decode_offset_infos(
            header.start_offset_info, header.msg_offset_info
        ):
            for offset in offsets:
                yield ReceiptHandle(
                    start,
                    header.pop_time,
                    header.invisible_time,
                    header.revive_qid,
                    kind,
                    "broker-a",
                    queue_id,
                    offset,
                )

    async def _handle(self, number: int, handle: ReceiptHandle, drops: bool) -> None:
        fate = self._chance.random() if drops else 1.0
        fields = {
            "consumer_group": GROUP,
            "topic": topic_of_kind(TOPIC, GROUP, PopTopicKind(handle.kind)),
            "queue_id": handle.queue_id,
            "queue_offset": handle.queue_offset,
        }
        if fate < 0.2:
            return  # it comes again
        if fate < 0.4:
            await self._change(number, fields, handle, self._chance.choice((0, 500, 2_500)))
            return
        ack = AckMessageRequestHeader(**fields, extra_info=handle.encode())  # type: ignore[arg-type]
        self.handled.add(number)
        in_time = time.time_ns() // 1_000_000 < handle.visible_again_ms - 500
        answer = await self.call(RemotingCommand.request(RequestCode.ACK_MESSAGE, ack))
        if answer.code == 0 and in_time:
            self.acked.add(number)

    async def _change(
        self, number: int, fields: dict[str, object], handle: ReceiptHandle, invisible_ms: int
    ) -> None:
        # It holds or not, if the broker is killed meanwhile.
        now_ms = time.time_ns() // 1_000_000
        self._visible_ms[number] = min(self._visible_ms[number], now_ms + invisible_ms)
        header = ChangeInvisibleTimeRequestHeader(
            **fields,  # type: ignore[arg-type]
            extra_info=handle.encode(),
            invisible_time=invisible_ms,
        )
        answer = await self.call(RemotingCommand.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))
        if answer.code == 0:
            changed = answer.header(ChangeInvisibleTimeResponseHeader)
            self._visible_ms[number] = changed.pop_time + changed.invisible_time


async def run(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    broker = KilledBroker(root, mappedFileSizeCommitLog=4 * 1024 * 1024)
    popper = Popper(broker.address, seed, count())
    try:
        for _ in range(_KILLS):
            await asyncio.to_thread(broker.start, flushDiskType=chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH")))
            work = asyncio.ensure_future(popper.work(drops=True))
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            broker.kill()
            work.cancel()
            await asyncio.wait([work])
        await asyncio.to_thread(broker.start)
        deadline = time.monotonic() + 20
        while popper.sent - popper.handled and time.monotonic() < deadline:
            await popper.pop()
        assert popper.sent
        assert not popper.sent - popper.popped.keys(), "lost"
        assert not popper.sent - popper.handled, "came no more before it was acknowledged"
        # What is due comes while nothing is left to be done.
        await asyncio.sleep(INVISIBLE_MS / 1000 + 3)
        await popper.pop()
        assert not popper.came_again, "acknowledged, and yet it came again"
        assert not popper.came_early, "came again before its invisible time was over, by so many ms"
    finally:
        await popper.client.stop()
        broker.kill()
    assert_store_ok(broker.store)


@pytest.mark.slow
async def test_popped_messages_are_handled_over_kills(tmp_path: Path) -> None:
    for seed in seeds(f"{_KILLS} kills with popped messages", seconds=15, full=60):
        with replayable(seed):
            folder = tmp_path / str(seed)
            folder.mkdir()
            await run(folder, seed)
