"""The relay of the outbox: nothing is lost or overtaken, with two relays, killed between any two steps."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.needed import need_module

need_module("psycopg_pool")
need_module("fastapi")

import psycopg  # noqa: E402
from psycopg.rows import namedtuple_row  # noqa: E402

from kourou import AsyncProducer, Message  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.e2e.shop.shop_kit import (  # noqa: E402
    armed,
    events_in,
    new_database,
    run_until_dead,
    settings_of,
    until,
)
from webshop.events import Kind, PaymentDue, PaymentEvent, Topic  # noqa: E402
from webshop.kit.database import Connection, Database  # noqa: E402
from webshop.kit.emit import TABLES, Emitter  # noqa: E402
from webshop.kit.kill_points import KillPoint  # noqa: E402
from webshop.kit.relay import Relay, send_shards  # noqa: E402
from webshop.settings import Settings, Way  # noqa: E402

pytestmark = pytest.mark.integration

POINTS = (
    KillPoint.RELAY_CLAIMED,
    KillPoint.RELAY_SENT,
    KillPoint.RELAY_DELETED,
    KillPoint.RELAY_COMMITTED,
)
ORDERS = 20
ROUNDS = 6


@pytest.fixture
def settings(postgres: int, cluster: LocalCluster) -> Settings:
    return settings_of(cluster, new_database(postgres), way="outbox")


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    database = Database(settings.database, "payments", pool_size=20)
    await database.open(TABLES)
    yield database
    await database.close()


def step(order_id: str, number: int) -> PaymentEvent:
    """An event of an order; its amount is its number."""
    return PaymentEvent(
        kind=Kind.PAYMENT_PAID,
        order_id=order_id,
        way=Way.OUTBOX,
        payment_id="p",
        user_id="ada",
        amount=number,
    )


async def emit_round(emitter: Emitter, number: int, *, orders: int = ORDERS) -> None:
    """One event of each order, all at once."""

    async def one(order_id: str) -> None:
        async with emitter.unit() as unit:
            unit.emit(step(order_id, number))

    await asyncio.gather(*(one(f"order-{each}") for each in range(orders)))


async def emit_all(settings: Settings, database: Database, *, orders: int = ORDERS) -> None:
    emitter = Emitter("payments", settings, database)  # which needs no broker
    for number in range(ROUNDS):
        await emit_round(emitter, number, orders=orders)


async def first_deliveries(cluster: LocalCluster) -> dict[str, list[int]]:
    """The numbers of each order's events, in the order of their queue, without repeats: an inbox's view."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for event in await events_in(cluster, Topic.PAYMENTS):
        assert isinstance(event, PaymentEvent)
        if event.amount not in numbers[event.order_id]:
            numbers[event.order_id].append(event.amount)
    return numbers


def in_order(orders: int = ORDERS, rounds: int = ROUNDS) -> dict[str, list[int]]:
    return {f"order-{number}": list(range(rounds)) for number in range(orders)}


async def is_empty(database: Database) -> bool:
    return not await database.rows("SELECT 1 FROM outbox LIMIT 1")


async def test_relays_that_die_between_any_two_steps_lose_and_overtake_nothing(
    settings: Settings, database: Database, cluster: LocalCluster, tmp_path: Path
) -> None:
    deaths = {armed(settings, tmp_path, point, point): point for point in POINTS}
    dying = asyncio.create_task(run_until_dead("relay", deaths))
    emitter = Emitter("payments", settings, database)
    rounds = 0
    while not dying.done():  # as long as each needs to get to its point
        await emit_round(emitter, rounds)
        rounds += 1
        await asyncio.sleep(0.1)
    await dying
    relay = asyncio.create_task(Relay(settings).run())
    await emit_round(emitter, rounds)
    await until(lambda: is_empty(database))
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    assert await first_deliveries(cluster) == in_order(rounds=rounds + 1)


async def test_two_relays_share_the_work_and_send_each_event_once(
    settings: Settings, database: Database, cluster: LocalCluster
) -> None:
    relays = [asyncio.create_task(Relay(settings).run()) for _ in range(2)]
    await emit_all(settings, database)
    await until(lambda: is_empty(database))
    for relay in relays:
        relay.cancel()
    await asyncio.gather(*relays, return_exceptions=True)
    events = await events_in(cluster, Topic.PAYMENTS)
    assert len({event.event_id for event in events}) == len(events) == ORDERS * ROUNDS
    assert await first_deliveries(cluster) == in_order()


async def test_a_broker_that_comes_back_gets_everything_in_order(
    settings: Settings, database: Database, cluster: LocalCluster
) -> None:
    relay = asyncio.create_task(Relay(settings).run())
    await emit_all(settings, database, orders=2)
    await until(lambda: is_empty(database))
    await cluster.aio.stop_broker()
    emitter = Emitter("payments", settings, database)
    for number in range(ROUNDS):
        async with emitter.unit() as unit:
            unit.emit(step("order-2", number))
    await cluster.aio.start_broker()
    await until(lambda: is_empty(database))
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    assert await first_deliveries(cluster) == in_order(3)


# -- transactions that stay open -----------------------------------------------------------------


@pytest.fixture
async def connection(settings: Settings) -> AsyncIterator[Connection]:
    """The connection of a relay."""
    async with await psycopg.AsyncConnection.connect(
        settings.database, autocommit=True, row_factory=namedtuple_row
    ) as connection:
        yield connection


@pytest.fixture
async def producer(settings: Settings) -> AsyncIterator[AsyncProducer]:
    async with AsyncProducer("test-relay", namesrv=settings.namesrv, idempotent=True) as producer:
        yield producer


async def test_a_smaller_id_that_is_committed_later_is_sent_first(
    settings: Settings,
    database: Database,
    cluster: LocalCluster,
    connection: Connection,
    producer: AsyncProducer,
) -> None:
    emitter = Emitter("payments", settings, database)
    async with database.transaction() as long:
        await _insert(long, step("7", 0))
        async with emitter.unit() as unit:
            unit.emit(step("7", 1))
        assert await send_shards(connection, producer, "payments") == 0  # id 2 is there, id 1 is not
    assert await send_shards(connection, producer, "payments") == 2
    assert await first_deliveries(cluster) == {"7": [0, 1]}


async def test_a_greater_id_with_a_smaller_transaction_id_waits_for_the_row_before_it(
    settings: Settings,
    database: Database,
    cluster: LocalCluster,
    connection: Connection,
    producer: AsyncProducer,
) -> None:
    """As when a consumer's transaction has stored the key of its message, and waits for a route's."""
    async with database.transaction() as consumer, database.transaction() as another:
        for each in (consumer, another):
            await each.execute("SELECT pg_current_xact_id()")
        async with database.transaction() as route:
            await _insert(route, step("7", 0))
        await _insert(consumer, step("7", 1))
        await consumer.commit()
        # The consumer's row is older than any open transaction; the route's is not, because of another one.
        assert await send_shards(connection, producer, "payments") == 0
    assert await send_shards(connection, producer, "payments") == 2
    assert await first_deliveries(cluster) == {"7": [0, 1]}


async def test_a_delay_counts_from_the_commit(
    settings: Settings, database: Database, connection: Connection, producer: AsyncProducer
) -> None:
    emitter = Emitter("payments", settings, database)
    async with emitter.unit() as unit:
        unit.emit(PaymentDue(order_id="7", way=Way.OUTBOX), delay_s=3_600)
    async with database.transaction() as later:
        await later.execute("UPDATE outbox SET created_at = created_at - interval '2 hours'")
    sent: list[Message] = []
    original = producer.send

    async def send(message: Message, **options: Any) -> Any:
        sent.append(message)
        return await original(message, **options)

    producer.send = send  # type: ignore[method-assign]
    assert await send_shards(connection, producer, "payments") == 1
    assert sent[0].properties["TIMER_DELAY_MS"] == "1"


async def test_a_shard_that_another_relay_works_on_is_left_to_it(
    settings: Settings,
    database: Database,
    cluster: LocalCluster,
    connection: Connection,
    producer: AsyncProducer,
) -> None:
    await emit_all(settings, database, orders=1)
    async with database.transaction() as other:
        await other.execute("SELECT 1 FROM outbox_shards FOR UPDATE")
        assert await send_shards(connection, producer, "payments") == 0
    assert await send_shards(connection, producer, "payments") == ROUNDS
    assert await first_deliveries(cluster) == in_order(1)


async def _insert(connection: Connection, event: PaymentEvent) -> None:
    """What a unit writes, in a transaction that the test holds open."""
    from webshop.kit import emit

    await emit._insert_outbox(connection, [emit._row(event, 0)])


async def test_the_outbox_of_a_service_that_starts_later_is_sent(
    settings: Settings, database: Database, cluster: LocalCluster
) -> None:
    relay = asyncio.create_task(Relay(settings).run())
    await emit_round(Emitter("payments", settings, database), 0, orders=1)
    await until(lambda: is_empty(database))
    later = Database(settings.database, "orders", pool_size=2)
    await later.open(TABLES)
    await emit_round(Emitter("orders", settings, later), 1, orders=1)
    await until(lambda: is_empty(later))
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    await later.close()
    assert await first_deliveries(cluster) == in_order(orders=1, rounds=2)
