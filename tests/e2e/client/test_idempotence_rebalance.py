"""@idempotent against a queue that moves while its message is in hand. The other causes of duplicates (a
send that is repeated, an acknowledgement that is lost, a restart) are programs of docs/client.md."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from kourou import ConsumeContext, MessageExt, MessageQueue, idempotent
from kourou.client.idempotence.idempotence_stores import MemoryStore
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import TOPIC, consumer_of, make_topic, queues_of, send, until

pytestmark = pytest.mark.e2e


class AllToOne:
    """Every queue to the consumer that is named at the time."""

    name = "ALL_TO_ONE"
    client_id = ""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues) if client_id == self.client_id else []


async def test_a_message_whose_queue_moves_is_worked_on_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(
        logging.CRITICAL, "kourou.client.push.handler_calls"
    )  # the refusal is logged, as any failure
    has_begun, may_end = asyncio.Event(), asyncio.Event()
    charges: list[str] = []
    deliveries: list[int] = []

    @idempotent(store=MemoryStore(), scope="billing")
    async def charge(message: MessageExt) -> None:
        has_begun.set()
        await may_end.wait()
        charges.append(message.keys[0])

    async def second(message: MessageExt, context: ConsumeContext) -> None:
        deliveries.append(message.reconsume_times)
        context.delay_level = 1
        await charge(message)

    strategy = AllToOne()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"one book"], KEYS="order-1")
        owner, heir = consumer_of(running, strategy=strategy), consumer_of(running, strategy=strategy)
        await owner.subscribe(TOPIC, charge)
        await heir.subscribe(TOPIC, second)
        strategy.client_id = owner.client_id
        async with owner:
            await until(has_begun.is_set, "the first has the message in hand")
            strategy.client_id = heir.client_id
            async with heir:
                await until(lambda: queues_of(heir) == [0], "the queue is the second's")
                await until(lambda: deliveries == [0], "the message came to the second too")
                assert charges == []
                may_end.set()
                await until(lambda: deliveries == [0, 1], "it came again")
                await until(lambda: heir.stats().consumed == 1, "and was passed over")
    assert charges == ["order-1"]
