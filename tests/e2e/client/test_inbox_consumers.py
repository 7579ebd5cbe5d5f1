"""Consumers whose messages, effects and offsets are one transaction of a database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kourou import ConsumeContext, MessageExt, MessageQueue, idempotent
from kourou.admin.group_offsets import reset_offsets
from kourou.admin.messages.redrive import RedriveOutcome, plan_redrive, redrive
from kourou.admin.session import Admin
from kourou.client import DbApiStore, unique_id_key
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.offsets import UpdateConsumerOffsetRequestHeader
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    call,
    consuming,
    make_topic,
    send,
    stored_offset,
    until,
)

pytestmark = pytest.mark.e2e


class Shop:
    """A database with what was charged for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.store = DbApiStore(self.connect)
        self.store.create_tables()
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE charges (body BLOB)")
            connection.commit()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=20)

    def rows(self, statement: str) -> list[object]:
        with closing(self.connect()) as connection:
            return [row[0] for row in connection.execute(statement)]

    @property
    def charged(self) -> list[object]:
        return self.rows("SELECT body FROM charges ORDER BY rowid")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


async def test_the_offset_in_the_database_decides_where_a_consumer_goes_on(
    tmp_path: Path, shop: Shop
) -> None:
    @idempotent(store=shop.store, key=None)
    def charge(message: MessageExt, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO charges VALUES (?)", [message.body])

    bodies = [b"%d" % number for number in range(5)]
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, bodies)
        async with consuming(running, charge, orderly=True, offsets=shop.store):
            await until(lambda: shop.charged == bodies, "all are charged for")
        # The broker's copy is for monitoring; here it is wrong.
        assert await stored_offset(running) == 5
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=0
        )
        await call(running, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        await send(running, [b"5"])
        async with consuming(running, charge, orderly=True, offsets=shop.store):
            await until(lambda: len(shop.charged) > 5, "the new one is charged for")
            assert shop.charged == [*bodies, b"5"]
            # An operator moves the group back: without keys the messages are consumed again.
            async with Admin(namesrv=running.namesrv_addr) as admin:
                await reset_offsets(admin, GROUP, TOPIC, 0)
            await until(lambda: shop.charged == [*bodies, b"5"] * 2, "all are charged for again")
        assert shop.store.read_offset(GROUP, MessageQueue(TOPIC, "broker-a", 0)) == 6
        assert await stored_offset(running) == 6
        # The same while the group is offline: the broker tells the next pull.
        async with Admin(namesrv=running.namesrv_addr) as admin:
            await reset_offsets(admin, GROUP, TOPIC, 0)
        async with consuming(running, charge, orderly=True, offsets=shop.store):
            await until(lambda: shop.charged == [*bodies, b"5"] * 3, "all are charged for once more")


async def test_a_batch_that_fails_suspends_its_queue_and_keeps_the_order(
    tmp_path: Path, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [False, True, True, False, False]

    @idempotent(store=shop.store, key=None)
    def charge(messages: list[MessageExt], connection: sqlite3.Connection) -> None:
        for message in messages:
            connection.execute("INSERT INTO charges VALUES (?)", [message.body])
        if failures and failures.pop(0):
            raise ValueError("no money")

    bodies = [b"%d" % number for number in range(9)]
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, bodies)
        async with consuming(running, charge, orderly=True, offsets=shop.store, batch_size=3, suspend_ms=10):
            await until(lambda: len(shop.charged) >= 9, "all are charged for")
    assert shop.charged == bodies
    assert not failures
    assert "no money" in caplog.text


async def test_retries_and_redriven_dead_letters_have_the_same_key(
    tmp_path: Path, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries: list[str] = []
    with pytest.warns(UserWarning, match="identified by their unique ids"):
        decorate = idempotent(store=shop.store, scope=GROUP, key=unique_id_key)

    @decorate
    def charge(message: MessageExt, connection: sqlite3.Connection, context: ConsumeContext) -> None:
        # By a retry first, then as a dead letter that is sent back, then well.
        connection.execute("INSERT INTO charges VALUES (?)", [message.body])
        deliveries.append(unique_id_key(message))
        context.delay_level = 1 if len(deliveries) == 1 else -1
        if len(deliveries) < 3:
            raise ValueError("no money")

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"one book"], UNIQ_KEY="A" * 32)
        async with consuming(running, charge) as consumer, Admin(namesrv=running.namesrv_addr) as admin:
            await until(lambda: len(deliveries) == 2, "it was delivered again")
            await until(lambda: consumer.stats().failed == 2, "and is a dead letter")
            plan = await plan_redrive(admin, GROUP)
            assert [each.outcome async for each in redrive(admin, plan)] == [RedriveOutcome.SENT]
            await until(lambda: shop.charged == [b"one book"], "it is charged for")
            await send(running, [b"one book"], UNIQ_KEY="A" * 32)  # the producer sends it again
            await until(lambda: consumer.stats().consumed == 2, "the repeat is acknowledged")
    assert deliveries == ["A" * 32] * 3
    assert shop.charged == [b"one book"]
    assert shop.rows("SELECT message_key FROM kourou_idempotence") == [f"{GROUP}/{TOPIC}/{'A' * 32}"]
    assert "no money" in caplog.text
