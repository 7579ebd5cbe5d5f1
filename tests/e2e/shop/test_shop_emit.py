"""A change in the database and its event are one step: both ways, killed between every two steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.needed import need_module

need_module("psycopg_pool")

import psycopg  # noqa: E402

from kourou import AsyncProducer, AsyncPushConsumer, MessageExt  # noqa: E402
from kourou.errors import SendFailedError  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.e2e.shop.dying_programs import FACTS  # noqa: E402
from tests.e2e.shop.shop_kit import (  # noqa: E402
    armed,
    events_in,
    new_database,
    run_until_dead,
    settings_of,
    until,
)
from webshop.errors import AwayError  # noqa: E402
from webshop.events import Event, Kind, PaymentDue, PaymentEvent, Topic, message_of  # noqa: E402
from webshop.kit.database import Database  # noqa: E402
from webshop.kit.emit import TABLES, Emitter, Unit  # noqa: E402
from webshop.kit.kill_points import KillPoint  # noqa: E402
from webshop.kit.relay import Relay  # noqa: E402
from webshop.settings import Settings, Way  # noqa: E402

pytestmark = pytest.mark.integration

STEPS = {
    Way.TRANSACTION: ("IN_WORK", "HALF_STORED", "BEFORE_COMMIT", "COMMITTED", "EMITTED"),
    Way.OUTBOX: ("IN_WORK", "OUTBOX_WRITTEN", "BEFORE_COMMIT", "COMMITTED", "EMITTED"),
}
COMMITTED = ("COMMITTED", "EMITTED")


@dataclass
class Part:
    """A service without HTTP: its database, and its emitter as a process of the service has it."""

    cluster: LocalCluster
    settings: Settings
    database: Database
    emitter: Emitter

    def paid(self, order_id: str, way: Way) -> PaymentEvent:
        return PaymentEvent(
            kind=Kind.PAYMENT_PAID, order_id=order_id, way=way, payment_id="p", user_id="ada", amount=1
        )

    async def facts(self) -> set[str]:
        return {row.order_id for row in await self.database.rows("SELECT order_id FROM facts")}

    async def told(self) -> list[str]:
        """The orders whose events are delivered."""
        return [event.order_id for event in await events_in(self.cluster, Topic.PAYMENTS)]

    async def add(self, unit: Unit, order_id: str, way: Way) -> None:
        await unit.connection.execute("INSERT INTO facts VALUES (%s)", [order_id])
        unit.emit(self.paid(order_id, way))


@pytest.fixture
async def part(postgres: int, cluster: LocalCluster) -> AsyncIterator[Part]:
    settings = settings_of(cluster, new_database(postgres))
    database = Database(settings.database, "payments")
    await database.open(TABLES, FACTS)
    emitter = Emitter("payments", settings, database)
    await emitter.start()
    relay = asyncio.create_task(Relay(settings).run())
    yield Part(cluster, settings, database, emitter)
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    await emitter.stop()
    await database.close()


async def test_an_event_is_delivered_if_and_only_if_its_fact_was_stored(part: Part, tmp_path: Path) -> None:
    deaths = {}
    for way, steps in STEPS.items():
        for step in steps:
            point = KillPoint[f"PAYMENTS_{step}_PAYMENT_PAID"]
            settings = replace(part.settings, way=way.value)
            deaths[armed(settings, tmp_path, f"{way}-{step}", point)] = point
    await run_until_dead("emit", deaths)
    stored = {f"{way}-{step}" for way in Way for step in COMMITTED}
    assert await part.facts() == stored

    async def is_decided() -> bool:
        never = await part.database.rows("SELECT id FROM sent_transactions WHERE state = 'NEVER'")
        return len(never) == 2 and stored <= set(await part.told())

    await until(is_decided)  # by this process, which has not sent the half messages
    assert sorted(await part.told()) == sorted(stored)


@pytest.mark.parametrize("way", Way)
async def test_work_that_fails_emits_nothing_and_stores_nothing(part: Part, way: Way) -> None:
    with pytest.raises(ZeroDivisionError):
        async with part.emitter.unit() as unit:
            await part.add(unit, "failed", way)
            raise ZeroDivisionError
    async with part.emitter.unit() as unit:
        await part.add(unit, "done", way)
    async with part.emitter.unit() as unit:
        await unit.connection.execute("SELECT 1")  # emits nothing
    await until(part.told)
    assert await part.told() == ["done"]
    assert await part.facts() == {"done"}


@pytest.mark.parametrize("way", Way)
async def test_a_reminder_comes_after_its_delay_either_way(part: Part, way: Way) -> None:
    due = PaymentDue(order_id="7", way=way)
    async with part.emitter.unit() as unit:
        unit.emit(due, delay_s=0.5)
    await until(lambda: part.cluster.aio.messages(Topic.TIMEOUTS))
    (message,) = await part.cluster.aio.messages(Topic.TIMEOUTS)
    (found,) = await events_in(part.cluster, Topic.TIMEOUTS)
    assert found == due
    assert message.store_timestamp - message.born_timestamp >= 400


async def test_a_broker_that_is_away_fails_the_unit_and_nothing_is_stored(part: Part) -> None:
    with part.cluster.pause():
        with pytest.raises(SendFailedError):
            async with part.emitter.unit() as unit:
                await part.add(unit, "half", Way.TRANSACTION)
        async with part.emitter.unit() as unit:
            await part.add(unit, "row", Way.OUTBOX)  # needs no broker
        assert await part.facts() == {"row"}
    await until(part.told)
    assert await part.told() == ["row"]


# -- checks --------------------------------------------------------------------------------------


@pytest.fixture
async def other(part: Part) -> AsyncIterator[Emitter]:
    """Another process of the same service: the broker may send it the checks."""
    database = Database(part.settings.database, "payments")
    await database.open()
    emitter = Emitter("payments", part.settings, database)
    await emitter.start()
    yield emitter
    await emitter.stop()
    await database.close()


# Both block until the test releases an advisory lock: a commit, and the row that says DONE.
BLOCKS = """
CREATE FUNCTION block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END $$;
"""
SLOW_COMMIT = """
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON facts DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION block()
"""
SLOW_WORK = """
CREATE TRIGGER slow BEFORE INSERT ON sent_transactions
FOR EACH ROW WHEN (NEW.state = 'DONE') EXECUTE FUNCTION block()
"""


async def test_the_check_of_an_open_transaction_waits_for_its_end(
    part: Part, other: Emitter, caplog: pytest.LogCaptureFixture
) -> None:
    async with part.database.transaction() as connection:
        await connection.execute(BLOCKS)
        await connection.execute(SLOW_COMMIT)
    caplog.set_level("INFO", "webshop.kit.emit")
    async with await psycopg.AsyncConnection.connect(part.settings.database) as lock:
        await lock.execute("SELECT pg_advisory_xact_lock(42)")
        work = asyncio.create_task(_add(part, "slow"))

        async def was_checked() -> bool:
            return "not known yet" in caplog.text

        await until(was_checked)
        assert await part.told() == [] and not work.done()
    await work
    await until(part.told)
    assert await part.told() == ["slow"]
    assert await part.facts() == {"slow"}


async def test_work_that_comes_after_its_check_is_rolled_back(part: Part, other: Emitter) -> None:
    async with part.database.transaction() as connection:
        await connection.execute(BLOCKS)
        await connection.execute(SLOW_WORK)
    async with await psycopg.AsyncConnection.connect(part.settings.database) as lock:
        await lock.execute("SELECT pg_advisory_xact_lock(42)")
        work = asyncio.create_task(_add(part, "late"))
        await until(lambda: part.database.rows("SELECT 1 FROM sent_transactions WHERE state = 'NEVER'"))
    with pytest.raises(AwayError, match="try again"):
        await work
    assert await part.facts() == set() and await part.told() == []
    async with part.database.transaction() as connection:
        await connection.execute("DROP TRIGGER slow ON sent_transactions")
    await _add(part, "late")  # the repeated request
    assert await part.facts() == {"late"} and await part.told() == ["late"]


async def _add(part: Part, order_id: str) -> None:
    async with part.emitter.unit() as unit:
        await part.add(unit, order_id, Way.TRANSACTION)


# -- the inbox -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", Way)
async def test_an_event_that_comes_again_is_handled_once_and_what_it_emits_is_emitted_once(
    part: Part, way: Way
) -> None:
    failures = [psycopg.OperationalError("as if the connection was lost"), RuntimeError("as if it was a bug")]

    async def on_due(event: Event, unit: Unit) -> None:
        await part.add(unit, event.order_id, way)
        if failures:
            raise failures.pop()

    attempts: list[str] = []

    async def consume(message: MessageExt) -> None:
        attempts.append(message.msg_id)
        try:
            await part.emitter.consume(message, on_due, "shop-test")
        except RuntimeError:
            await part.emitter.consume(message, on_due, "shop-test")

    due = PaymentDue(order_id="7", way=way)
    async with (
        AsyncProducer("test", namesrv=part.settings.namesrv) as producer,
        AsyncPushConsumer("shop-test", namesrv=part.settings.namesrv, consume_from="first") as consumer,
    ):
        await consumer.subscribe(Topic.TIMEOUTS, consume)
        for _ in range(3):
            await producer.send(message_of(due), sharding_key="7")

        async def are_consumed() -> bool:
            return len(attempts) == 3 and bool(await part.told())

        await until(are_consumed)
    assert await part.facts() == {"7"}
    assert await part.told() == ["7"]
