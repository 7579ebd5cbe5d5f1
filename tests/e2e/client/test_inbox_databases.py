"""@idempotent in a database: one suite for SQLite, PostgreSQL and MariaDB, by each kind of driver."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from kourou import ConsumeContext, ConsumeResult
from kourou.client import DbApiStore
from kourou.client.idempotence import inbox
from kourou.client.idempotence.inbox_sql import is_transient
from kourou.client.push.handlers import bound_handler
from kourou.errors import ClientError, TransactionEndedError
from tests.e2e.client.kit.database_servers import mariadb, postgresql
from tests.e2e.client.kit.inbox_kit import KINDS, QUEUE, Place, Shop, order, orders

pytestmark = [pytest.mark.slow, pytest.mark.integration]

EVERY = [(database, kind) for database, kinds in KINDS.items() for kind in kinds]
SERVERS = [(database, kind) for database, kind in EVERY if database != "sqlite"]
# Each database, each kind of connection.
SOME = [
    *(
        ("sqlite", "sqlite3"),
        ("sqlite", "async orm"),
        ("postgresql", "pg8000"),
        ("postgresql", "psycopg async"),
    ),
    *(("mariadb", "pymysql"), ("mariadb", "orm")),
]
BLOCKING = [(database, kind) for database, kind in EVERY if kind in ("sqlite3", "pg8000", "pymysql", "orm")]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Place]]:
    """Databases, each started when it is first needed."""
    folder = tmp_path_factory.mktemp("databases")
    found: dict[str, Place] = {}
    with ExitStack() as servers:

        def place(database: str) -> Place:
            if database not in found:
                starts = {"postgresql": postgresql, "mariadb": mariadb}
                port = servers.enter_context(starts[database]()) if database in starts else 0
                found[database] = Place(database, folder / "shop.db", port)
            return found[database]

        yield place


@pytest.fixture
def shop(request: pytest.FixtureRequest, places: Callable[[str], Place]) -> Iterator[Shop]:
    database, kind = request.param
    made = Shop(places(database), kind)
    yield made
    made.close()


def on(combinations: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "shop", combinations, indirect=True, ids=[" ".join(each) for each in combinations]
    )


@on(EVERY)
def test_work_and_keys_are_there_once_or_not_at_all(shop: Shop) -> None:
    def fail(connection: Any) -> None:
        raise ValueError("no money")

    with pytest.raises(ValueError, match="no money"):
        shop.deliver(shop.handler(fail), order(1))
    assert shop.deliver(shop.handler(lambda _: ConsumeResult.LATER), order(1)) is ConsumeResult.LATER
    assert (shop.charged, shop.keys) == ([], 0)
    charge = shop.handler(lambda _: ConsumeResult.SUCCESS)
    assert shop.deliver(charge, order(1)) is ConsumeResult.SUCCESS
    assert shop.deliver(charge, order(1)) is None
    # A batch of which some are repeats, one of them within the batch.
    shop.deliver(charge, orders(2, 1, 3, 2))
    shop.deliver(charge, orders(3, 2, 1))
    assert (shop.charged, shop.keys) == (["order-1", "order-2", "order-3"], 3)


@on(EVERY)
def test_offsets_recognise_repeats_without_keys(shop: Shop) -> None:
    charge = shop.handler(key=None)
    assert shop.run(shop.store.read_offset("billing", QUEUE)) is None
    shop.deliver(charge, orders(0, 1), first_offset=10)
    shop.deliver(charge, orders(0, 1), first_offset=10)
    shop.deliver(charge, orders(1, 2, 3), first_offset=11)  # overlaps
    shop.deliver(charge, order(9), first_offset=20)  # after messages that a filter left out
    assert shop.charged == ["order-0", "order-1", "order-2", "order-3", "order-9"]
    assert shop.run(shop.store.read_offset("billing", QUEUE)) == 21
    assert shop.keys == 0
    # It moves back by a reset only.
    shop.run(shop.store.store_offset("billing", QUEUE, 5))
    assert shop.run(shop.store.read_offset("billing", QUEUE)) == 21
    shop.run(shop.store.store_offset("billing", QUEUE, 20, is_reset=True))
    shop.deliver(charge, order(9), first_offset=20)
    assert shop.charged[-2:] == ["order-9", "order-9"]


@on(SOME)
def test_offset_keys_and_work_are_rolled_back_together(shop: Shop) -> None:
    shop.deliver(shop.handler(), order(0), first_offset=0)
    shop.deliver(shop.handler(lambda _: ConsumeResult.SUSPEND), orders(1, 2), first_offset=1)
    assert (shop.charged, shop.keys) == (["order-0"], 1)
    assert shop.run(shop.store.read_offset("billing", QUEUE)) == 1
    # A repeat by key, at a new offset: nothing to do, and the offset moves.
    shop.deliver(shop.handler(), order(0), first_offset=1)
    assert shop.run(shop.store.read_offset("billing", QUEUE)) == 2
    assert shop.charged == ["order-0"]


@on(SOME)
def test_a_handler_that_commits_and_fails_gets_the_message_again(shop: Shop) -> None:
    fails = [True]

    def commit_and_fail(connection: Any) -> Any:
        committed = connection.commit()
        if inspect.isawaitable(committed):
            return fail_after(committed)
        return fail()

    async def fail_after(committed: Any) -> None:
        await committed
        fail()

    def fail() -> None:
        if fails.pop():
            raise ValueError("no money")

    with pytest.raises(TransactionEndedError) as caught:
        shop.deliver(shop.handler(commit_and_fail), orders(1, 2), first_offset=7)
    assert isinstance(caught.value.__cause__, ValueError)
    assert (shop.charged, shop.keys) == (["order-1", "order-2"], 0)
    assert shop.run(shop.store.read_offset("billing", QUEUE)) == 7


@on(SOME)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_handler_that_ends_the_transaction_is_an_error(shop: Shop, end: str) -> None:
    with pytest.raises(TransactionEndedError, match="must not commit or roll back"):
        shop.deliver(shop.handler(lambda connection: getattr(connection, end)()), order(1))
    # What the handler committed, it committed with the key: never one without the other.
    expected = ["order-1"] if end == "commit" else []
    assert (shop.charged, shop.keys) == (expected, len(expected))
    shop.deliver(shop.handler(), order(1))
    assert shop.charged == ["order-1"]


@pytest.mark.parametrize("kind", ["psycopg", "pymysql", "orm"])
def test_a_connection_that_commits_by_itself_is_refused(places: Callable[[str], Place], kind: str) -> None:
    place = places("mariadb" if kind == "pymysql" else "postgresql")
    shop = Shop(place, kind)
    table = f"{shop.name}_keys"
    if kind == "orm":
        shop.engine_options["isolation_level"] = "AUTOCOMMIT"
        store = shop.make_store(table=table)
    else:
        store = DbApiStore(lambda: _autocommitting(place), table=table)
    with pytest.raises(ValueError, match="is in autocommit mode"):
        store.run_once("k", lambda connection: None, lambda result: True)
    assert shop.keys == 0
    shop.close()


def _autocommitting(place: Place) -> Any:
    connection = place.connect()
    if place.is_postgresql:
        connection.autocommit = True
    else:
        connection.autocommit(True)
    return connection


@on([each for each in EVERY if "async" in each[1] or each[1] == "aiosqlite"])
def test_a_cancelled_handler_leaves_nothing(shop: Shop) -> None:
    async def deliver() -> None:
        is_in, never = asyncio.Event(), asyncio.Event()

        async def wait(_: Any) -> None:
            is_in.set()
            await never.wait()

        task = asyncio.create_task(shop.handler(wait)(order(1)))
        await is_in.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    shop.run(deliver())
    assert (shop.charged, shop.keys) == ([], 0)
    shop.deliver(shop.handler(), order(1))  # no lock is left
    assert shop.charged == ["order-1"]


@on([("postgresql", "pg8000"), ("postgresql", "psycopg"), ("postgresql", "core")])
def test_an_error_that_the_handler_suppressed_does_not_lose_the_message(shop: Shop) -> None:
    # PostgreSQL answers the COMMIT of an aborted transaction with a rollback, and no error.
    def suppress(connection: Any) -> None:
        try:
            shop.execute(connection, "SELECT * FROM no_such_table")
        except Exception:
            return

    with pytest.raises(TransactionEndedError):
        shop.deliver(shop.handler(suppress), order(1))
    assert (shop.charged, shop.keys) == ([], 0)


@on([("mariadb", "pymysql"), ("mariadb", "orm")])
def test_ddl_that_commits_implicitly_is_an_error(shop: Shop) -> None:
    def create(connection: Any) -> None:
        shop.execute(connection, f"CREATE TABLE {shop.name}_more (a INTEGER)")

    with pytest.raises(TransactionEndedError, match="nor execute DDL on MySQL"):
        shop.deliver(shop.handler(create), order(1))
    assert (shop.charged, shop.keys) == (["order-1"], 1)


@on(BLOCKING)
def test_of_many_deliveries_at_once_one_is_handled(shop: Shop) -> None:
    all_there = threading.Barrier(8, timeout=20)
    charge = shop.handler()

    def deliver(number: int) -> None:
        all_there.wait()
        # Batches with the same keys in other orders do not wait for each other in a circle.
        charge(orders(1, 2, 3) if number % 2 else orders(3, 2, 1))

    with ThreadPoolExecutor(8) as deliveries:
        list(deliveries.map(deliver, range(8)))
    assert shop.charged == ["order-1", "order-2", "order-3"]


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_at_every_isolation_level_one_is_handled(
    places: Callable[[str], Place], database: str, level: str
) -> None:
    shop = Shop(places(database), "orm", engine_options={"isolation_level": level})
    all_there = threading.Barrier(6, timeout=20)
    charge = shop.handler()
    by_offset = bound_handler(shop.handler(key=None), shop.store, "billing")  # type: ignore[arg-type]

    def deliver(_: int) -> None:
        all_there.wait()
        for handle, arguments in ((charge, ()), (by_offset, (ConsumeContext(QUEUE),))):
            while True:
                try:
                    handle(order(1), *arguments)  # type: ignore[operator]
                    break
                except Exception as error:
                    assert is_transient(error)  # it is delivered again

    with ThreadPoolExecutor(6) as deliveries:
        list(deliveries.map(deliver, range(6)))
    assert shop.charged == ["order-1", "order-1"]  # once by its key, once by its offset
    shop.close()


@on(BLOCKING)
def test_the_second_of_two_waits_and_works_if_the_first_fails(shop: Shop) -> None:
    is_first_in, second_started = threading.Event(), threading.Event()

    def wait_and_fail(connection: Any) -> None:
        is_first_in.set()
        assert second_started.wait(20)
        time.sleep(0.05)  # the second is at the database meanwhile, whose locks cannot be observed
        raise ValueError("no money")

    def deliver_second() -> None:
        second_started.set()
        shop.handler()(order(1))

    with ThreadPoolExecutor(2) as deliveries:
        first = deliveries.submit(shop.handler(wait_and_fail), order(1))
        assert is_first_in.wait(20)
        deliveries.submit(deliver_second).result(20)
        with pytest.raises(ValueError, match="no money"):
            first.result(20)
    assert (shop.charged, shop.keys) == (["order-1"], 1)


@on([each for each in BLOCKING if each[0] != "sqlite"])
def test_a_deadlock_of_handlers_is_retried(shop: Shop) -> None:
    shop.place.query(f"CREATE TABLE {shop.name}_stock (item INTEGER PRIMARY KEY, count INTEGER)")
    shop.place.query(f"INSERT INTO {shop.name}_stock VALUES (1, 0), (2, 0)")
    both_in = threading.Barrier(2)
    attempts: list[int] = []

    def take(first: int, second: int) -> Callable[[Any], None]:
        def update(connection: Any) -> None:
            attempts.append(first)
            for item in (first, second):
                shop.execute(
                    connection, f"UPDATE {shop.name}_stock SET count = count + 1 WHERE item = {item}"
                )
                if len(attempts) <= 2 and item == first:
                    both_in.wait(20)

        return update

    with ThreadPoolExecutor(2) as deliveries:
        ends = [
            deliveries.submit(shop.handler(take(1, 2)), order(1)),
            deliveries.submit(shop.handler(take(2, 1)), order(2)),
        ]
        for end in ends:
            end.result(20)
    assert len(attempts) > 2
    assert shop.charged == ["order-1", "order-2"]
    assert shop.place.query(f"SELECT count FROM {shop.name}_stock") == [(2,), (2,)]


@on(SERVERS)
def test_a_lost_connection_is_replaced(shop: Shop) -> None:
    attempts: list[int] = []

    def lose(connection: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            for (number,) in shop.place.query(_OTHERS[shop.place.database]):
                shop.place.query(_KILL[shop.place.database].format(number))

    # The handler's own transaction is lost after its statement.
    shop.deliver(shop.handler(lose), order(1))
    assert len(attempts) == 2
    assert (shop.charged, shop.keys) == (["order-1"], 1)


_OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE usename = 'shop' AND pid <> pg_backend_pid()",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE command = 'Sleep'",
}
_KILL = {"postgresql": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


@on(SOME)
def test_old_keys_are_deleted_in_small_steps(shop: Shop) -> None:
    now = 1_000.0
    other = Shop(shop.place, shop.kind, options={"now": lambda: now, "done_seconds": 100.0})
    charge = other.handler()
    count = inbox._EXPIRED_AT_ONCE + 1
    other.deliver(charge, orders(*range(count)))
    now = 1_050.0
    other.deliver(charge, order(1_001))
    assert other.keys == count + 1
    now = 1_101.0
    for left in (3, 3, 3):  # one step with the first delivery, the rest with the next
        other.deliver(charge, order(1_001 + left))
    assert other.keys == 2
    now = 1_500.0
    assert other.run(other.store.forget_older_than(100.0)) == 2
    other.close()


@on(BLOCKING)
def test_tables_are_created_by_many_at_once_and_twice(shop: Shop) -> None:
    stores = [shop.make_store(table=f"{shop.name}_new") for _ in range(4)]
    with ThreadPoolExecutor(4) as creators:
        list(creators.map(lambda store: store.create_tables(), stores))
    stores[0].create_tables()
    assert shop.place.query(f"SELECT max(version) FROM {shop.name}_new_schema") == [(1,)]


@on(BLOCKING)
def test_tables_of_a_newer_release_are_refused(shop: Shop) -> None:
    shop.place.query(f"UPDATE {shop.name}_keys_schema SET version = 7")
    with pytest.raises(
        ClientError, match="have schema version 7, and this release of Kourou knows versions up to 1"
    ):
        shop.store.create_tables()
