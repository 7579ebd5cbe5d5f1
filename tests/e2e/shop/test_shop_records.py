"""Stock, coupons and balances on a real PostgreSQL: taken once, given back once, in whatever order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from tests.needed import need_module

psycopg = need_module("psycopg")
need_module("psycopg_pool")

from tests.e2e.shop.shop_kit import new_database  # noqa: E402
from webshop.coupons import tables as coupons  # noqa: E402
from webshop.errors import Code, RefusedError  # noqa: E402
from webshop.events import Item  # noqa: E402
from webshop.goods import tables as goods  # noqa: E402
from webshop.kit.database import AWAY, Database  # noqa: E402
from webshop.users import tables as users  # noqa: E402

pytestmark = pytest.mark.integration


@pytest.fixture
async def database(postgres: int) -> AsyncIterator[Database]:
    """One schema with the tables of three services: their statements are the same as in three."""
    database = Database(new_database(postgres), "shop", pool_size=30)
    await database.open(goods.TABLES, coupons.TABLES, users.TABLES)
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO goods VALUES ('tea', 'Tea', '', 650, 10, 10)")
        await connection.execute("INSERT INTO goods VALUES ('cup', 'Cup', '', 890, 3, 3)")
        await connection.execute("INSERT INTO coupons VALUES ('ada-1', 'ada', 500, NULL)")
        await connection.execute("INSERT INTO users VALUES ('ada', 'Ada', 1000, 1000)")
    yield database
    await database.close()


async def take(database: Database, order_id: str, *, quantity: int = 2, amount: int = 300) -> None:
    """What an order takes, all in one transaction."""
    async with database.transaction() as connection:
        await goods.take_stock(connection, order_id, [Item("tea", quantity, 650), Item("cup", 1, 890)])
        await coupons.take_coupon(connection, order_id, "ada-1", "ada")
        await users.take_balance(connection, order_id, "ada", amount)


async def give_back(database: Database, order_id: str) -> None:
    async with database.transaction() as connection:
        await goods.return_stock(connection, order_id)
        await coupons.return_coupon(connection, order_id)
        await users.return_balance(connection, order_id)


async def left(database: Database) -> tuple[int, int, str | None, int]:
    """Tea, cups, the coupon's order, the balance."""
    stock = {row.goods_id: row.stock for row in await database.rows(goods.LIST)}
    coupon = await database.row(coupons.ONE, "ada-1")
    user = await database.row(users.ONE, "ada")
    assert coupon is not None and user is not None
    return stock["tea"], stock["cup"], coupon.used_by, user.balance


async def test_a_repeated_deduction_takes_once_and_a_repeated_undoing_gives_back_once(
    database: Database,
) -> None:
    for _ in range(2):
        await take(database, "7")
    assert await left(database) == (8, 2, "7", 700)
    for _ in range(2):
        await give_back(database, "7")
    assert await left(database) == (10, 3, None, 1000)


async def test_a_repeated_deduction_that_differs_is_refused(database: Database) -> None:
    await take(database, "7")
    for other in (take(database, "7", quantity=1), take(database, "7", amount=299)):
        with pytest.raises(RefusedError) as refusal:
            await other
        assert refusal.value.code is Code.ORDER_DIFFERS
    assert await left(database) == (8, 2, "7", 700)


async def test_an_order_that_was_cancelled_before_it_takes_gets_nothing(database: Database) -> None:
    await give_back(database, "7")
    with pytest.raises(RefusedError) as refusal:
        await take(database, "7")
    assert refusal.value.code is Code.ORDER_CANCELLED
    assert await left(database) == (10, 3, None, 1000)
    for each in ("stock_records", "coupon_records", "balance_records"):
        (record,) = await database.rows(f"SELECT state FROM {each}")  # type: ignore[arg-type]
        assert record.state == "RETURNED"


async def test_an_order_that_was_undone_cannot_take_again(database: Database) -> None:
    await take(database, "7")
    await give_back(database, "7")
    with pytest.raises(RefusedError):
        await take(database, "7")
    assert await left(database) == (10, 3, None, 1000)


async def test_a_refused_deduction_leaves_no_record_behind(database: Database) -> None:
    with pytest.raises(RefusedError) as refusal:
        await take(database, "7", quantity=11)
    assert refusal.value.code is Code.OUT_OF_STOCK
    with pytest.raises(RefusedError) as refusal:
        await take(database, "7", amount=1001)
    assert refusal.value.code is Code.BALANCE_TOO_SMALL
    assert await left(database) == (10, 3, None, 1000)
    await take(database, "7")
    assert await left(database) == (8, 2, "7", 700)


async def test_the_last_pieces_and_a_coupon_go_to_one_of_many_at_once(database: Database) -> None:
    ends = await asyncio.gather(
        *(take(database, f"{n}", amount=1) for n in range(20)), return_exceptions=True
    )
    assert sum(end is None for end in ends) == 1  # the coupon is for one order
    assert all(isinstance(end, RefusedError) for end in ends if end is not None)
    tea, cup, used_by, balance = await left(database)
    assert (tea, cup, balance) == (8, 2, 999)
    assert ends[int(used_by or "")] is None


@pytest.mark.parametrize("seed", range(3))
async def test_taking_and_giving_back_at_once_end_with_nothing_taken(database: Database, seed: int) -> None:
    """However deliveries and requests of some cancelled orders interleave, nothing stays taken."""
    chance = random.Random(seed)

    async def some_time_later(work: object) -> None:
        await asyncio.sleep(chance.random() / 50)
        try:
            await work  # type: ignore[misc]
        except RefusedError:
            pass

    works = [
        some_time_later(step(database, f"{number}"))
        for number in range(6)
        for step in (take, take, give_back, give_back)
    ]
    chance.shuffle(works)
    await asyncio.gather(*works)
    assert await left(database) == (10, 3, None, 1000)
    records = await database.rows("SELECT state FROM stock_records")
    assert [record.state for record in records] == ["RETURNED"] * 6


async def test_connections_that_broke_are_given_back_to_the_pool(postgres: int) -> None:
    """As the inbox uses them. A pool that counted them as in use would be empty after some restarts of the
    database, and the service would hang."""
    database = Database(new_database(postgres), "shop", pool_size=2)
    await database.open()
    try:
        for _ in range(3):
            connection = await database._pool.getconn()
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            assert connection.broken
            await connection.close()
        assert await database.row("SELECT 1 AS one") == (1,)
    finally:
        await database.close()


async def test_a_database_that_is_away_for_long_is_opened_when_it_is_there(
    postgres: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webshop.kit.database._WAIT_S", 0.3)
    url = f"postgresql://shop@127.0.0.1:{postgres}/shop_later"
    database = Database(url, "shop")
    try:
        for _ in range(2):
            with pytest.raises(AWAY):
                await database.open()
        with psycopg.connect(url.replace("shop_later", "postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop_later")
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(0.05)
                with contextlib.suppress(*AWAY):
                    await database.open()
                    break
        assert await database.row("SELECT 1 AS one") == (1,)
    finally:
        await database.close()
