"""The invariants of the shop: each kind of wrong is planted in a database that is right, and found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.e2e.client.kit.database_servers import postgresql
from tests.needed import need_module

psycopg = need_module("psycopg")
need_module("psycopg_pool")
need_module("fastapi")

from webshop.checking.invariants import check, check_in_transaction  # noqa: E402
from webshop.checking.rules import FINAL, PENDING, WRONG  # noqa: E402
from webshop.coupons.tables import TABLES as COUPONS  # noqa: E402
from webshop.goods.tables import TABLES as GOODS  # noqa: E402
from webshop.journal.tables import TABLES as LOG  # noqa: E402
from webshop.kit.database import Database  # noqa: E402
from webshop.kit.emit import TABLES as OUTBOX  # noqa: E402
from webshop.orders.tables import TABLES as ORDERS  # noqa: E402
from webshop.payments.tables import TABLES as PAYMENTS  # noqa: E402
from webshop.points.tables import TABLES as POINTS  # noqa: E402
from webshop.provider.tables import TABLES as PROVIDER  # noqa: E402
from webshop.users.tables import TABLES as USERS  # noqa: E402

pytestmark = pytest.mark.integration

_TABLES = {
    "goods": GOODS,
    "coupons": COUPONS,
    "users": USERS,
    "orders": ORDERS + OUTBOX,
    "payments": PAYMENTS + OUTBOX,
    "points": POINTS,
    "log": LOG,
    "provider": PROVIDER,
}
# Order `paid`: two packets of tea, a coupon of 5.00, a balance of 4.00, 10.00 by payment.
# Order `late`: one packet, cancelled, and refunded after its payment came.
_RIGHT = """
INSERT INTO goods.goods VALUES ('tea', 'Tea', '', 450, 100, 98);
INSERT INTO goods.stock_records (order_id, state, items) VALUES
    ('paid', 'TAKEN', '[{"goods_id": "tea", "quantity": 2, "price": 450}]'),
    ('late', 'RETURNED', '[{"goods_id": "tea", "quantity": 1, "price": 450}]');
INSERT INTO coupons.coupons VALUES ('c1', 'ada', 500, 'paid'), ('c2', 'ada', 500, NULL);
INSERT INTO coupons.coupon_records (order_id, coupon_id, state) VALUES ('paid', 'c1', 'TAKEN');
INSERT INTO users.users VALUES
    ('ada', 'Ada', 5000, 4600, 1000, 'BRONZE'), ('bob', 'Bob', 70, 70, 0, 'BRONZE');
INSERT INTO users.balance_records (order_id, user_id, amount, state) VALUES ('paid', 'ada', 400, 'TAKEN');
INSERT INTO orders.orders (order_id, user_id, items, goods_total, shipping, coupon_id, coupon_value,
                           balance_paid, amount_due, state, reason, way, payment_id, created_at, confirmed_at,
                           paid_at, cancelled_at) VALUES
    ('paid', 'ada', '[{"goods_id": "tea", "quantity": 2, "price": 450}]', 900, 1000, 'c1', 500, 400, 1000,
     'PAID', NULL, 'outbox', 'p1', now(), now(), now(), NULL),
    ('late', 'bob', '[{"goods_id": "tea", "quantity": 1, "price": 450}]', 450, 1000, NULL, 0, 0, 1450,
     'CANCELLED', 'NOT_PAID', 'transaction', NULL, now(), now(), NULL, now());
INSERT INTO payments.payments (payment_id, order_id, user_id, amount, state, way, paid_at) VALUES
    ('p1', 'paid', 'ada', 1000, 'PAID', 'outbox', now()),
    ('p2', 'late', 'bob', 1450, 'REFUNDED', 'transaction', now());
INSERT INTO provider.charges (payment_id, amount, state, callback) VALUES
    ('p1', 1000, 'PAID', ''), ('p2', 1450, 'REFUNDED', '');
INSERT INTO provider.ledger (payment_id, kind, amount) VALUES
    ('p1', 'CHARGE', 1000), ('p2', 'CHARGE', 1450), ('p2', 'REFUND', 1450);
INSERT INTO points.point_records (order_id, user_id, points) VALUES ('paid', 'ada', 10);
INSERT INTO points.points VALUES ('ada', 10);
INSERT INTO log.events SELECT order_id || kind, order_id, kind, topic, 'a', 0, 0, 'm', now(), now(), now(),
    'outbox', jsonb_build_object('payment_id', payment_id)
    FROM (VALUES ('paid', 'p1'), ('late', 'p2')) AS orders (order_id, payment_id), (VALUES
        ('ORDER_CREATED', 'shop-orders'), ('ORDER_CONFIRMED', 'shop-orders'), ('ORDER_PAID', 'shop-orders'),
        ('ORDER_CANCELLED', 'shop-orders'), ('REFUND_DUE', 'shop-orders'),
        ('PAYMENT_CREATED', 'shop-payments'), ('PAYMENT_PAID', 'shop-payments'),
        ('PAYMENT_REFUNDED', 'shop-payments'), ('PAYMENT_DUE', 'shop-timeouts')) AS events (kind, topic)
    WHERE (order_id, kind) NOT IN (('paid', 'ORDER_CANCELLED'), ('paid', 'REFUND_DUE'),
                                   ('paid', 'PAYMENT_REFUNDED'), ('late', 'ORDER_PAID'));
"""
_ITEMS = """'[{"goods_id": "tea", "quantity": 1, "price": 450}]'"""

WRONGS = {
    "stock is never negative": (
        "ALTER TABLE goods.goods DROP CONSTRAINT goods_stock_check; UPDATE goods.goods SET stock = -1",
        "goods tea: the stock is -1",
    ),
    "sold + left = delivered": (
        "UPDATE goods.goods SET stock = 99",
        "goods tea: 100 were delivered, but 2 sold and 99 left are +1 pieces",
    ),
    "stock is taken for what was ordered": (
        f"UPDATE goods.stock_records SET items = {_ITEMS} WHERE order_id = 'paid'",
        'order paid: [{"price": 450, "goods_id": "tea", "quantity": 1}] of the stock was taken, but '
        '[{"price": 450, "goods_id": "tea", "quantity": 2}] was ordered',
    ),
    "a coupon is used at most once": (
        "INSERT INTO coupons.coupon_records (order_id, coupon_id, state) VALUES ('late', 'c1', 'TAKEN')",
        "coupon c1: used by 2 orders: late, paid",
    ),
    "a coupon and its record agree": (
        "UPDATE coupons.coupons SET used_by = 'paid' WHERE coupon_id = 'c2'",
        "coupon c2: marked as used by paid, but the record is of no order",
    ),
    "a coupon gives its value": (
        "UPDATE orders.orders SET coupon_value = 501, amount_due = 999 WHERE order_id = 'paid'",
        "order paid: coupon c1 counts 5.01, but its value is 5.00",
    ),
    "balances = opening balances - what orders took": (
        "UPDATE users.users SET balance = balance + 1 WHERE user_id = 'ada'",
        "user ada: the balance is 46.01, but 50.00 at first less 4.00 taken are 46.00",
    ),
    "an order's total = coupon + balance + due": (
        "ALTER TABLE orders.orders DROP CONSTRAINT orders_check; "
        "UPDATE orders.orders SET amount_due = 1001 WHERE order_id = 'paid'",
        "order paid: goods 9.00 and shipping 10.00 are 19.00, but coupon 5.00, balance 4.00 and due 10.01 "
        "are 19.01",
    ),
    "a confirmed order has its deductions": (
        "DELETE FROM users.balance_records",
        "order paid is PAID, but its balance was not taken: no record instead of TAKEN 4.00",
    ),
    "every deduction belongs to an order": (
        "INSERT INTO users.balance_records (order_id, user_id, amount, state) "
        "VALUES ('none', 'bob', 7, 'TAKEN')",
        "order none: 0.07 is taken for it, but there is no such order",
    ),
    "a payment is over what its order is due": (
        "UPDATE payments.payments SET amount = 999 WHERE payment_id = 'p1'",
        "payment p1 is over 9.99, but order paid is due 10.00",
    ),
    "a paid order has one payment": (
        "UPDATE payments.payments SET state = 'DECLINED' WHERE payment_id = 'p1'",
        "order paid is PAID and due 10.00, but has 0 paid payments over 0.00",
    ),
    "only payments that their orders do not need are refunded": (
        "UPDATE payments.payments SET state = 'REFUNDED' WHERE payment_id = 'p1'",
        "payment p1 over 10.00 is REFUNDED, but order paid is PAID",
    ),
    "a payment and its charge agree": (
        "UPDATE provider.charges SET state = 'DECLINED' WHERE payment_id = 'p1'",
        "payment p1 is PAID over 10.00, but its charge at the provider is DECLINED over 10.00",
    ),
    "money moves once for a charge": (
        "INSERT INTO provider.ledger (payment_id, kind, amount) VALUES ('p2', 'REFUND', 1450)",
        "payment p2: the charge over 14.50 is REFUNDED, but the provider's ledger has 14.50 in "
        "(1 times) and 29.00 out (2 times)",
    ),
    "points are earned by paid orders": (
        "INSERT INTO points.point_records (order_id, user_id, points) VALUES ('late', 'bob', 14)",
        "order late is CANCELLED and due 14.50, but earned 14 points",
    ),
    "a user's points = the points of the orders": (
        "UPDATE points.points SET points = 20",
        "user ada has 20 points, but the orders earned 10",
    ),
    "a user's level is that of what was spent": (
        "UPDATE users.users SET level = 'GOLD' WHERE user_id = 'ada'",
        "user ada has spent 10.00, but is GOLD instead of BRONZE",
    ),
}
PENDINGS = {
    "no order is left between states": (
        "UPDATE orders.orders SET state = 'NEW' WHERE order_id = 'late'",
        "order late over 14.50 is still NEW",
        "orders that are not paid or cancelled yet: 1",
    ),
    "no payment is left between states": (
        "UPDATE payments.payments SET state = 'REFUND_DUE' WHERE payment_id = 'p2'",
        "payment p2 over 14.50 of order late is still REFUND_DUE",
        "payments that are not settled yet: 1",
    ),
    "every payment has reached its order": (
        "UPDATE orders.orders SET state = 'CONFIRMED', paid_at = NULL WHERE order_id = 'paid'",
        "payment p1 over 10.00 is PAID, but order paid is CONFIRMED",
        "payments that have not reached their orders yet: 1",
    ),
    "every callback is answered": (
        "INSERT INTO provider.callbacks VALUES ('p1-2', 'p1', 'PAID', now() - interval '7 s')",
        "payment p1: callback p1-2 (PAID) is not answered, for 7.0 s",
        "callbacks of the provider that are not answered yet: 1 (the oldest for 7.0 s)",
    ),
    "no deduction of a cancelled order is left": (
        "INSERT INTO users.balance_records (order_id, user_id, amount, state) "
        "VALUES ('late', 'bob', 7, 'TAKEN'); UPDATE users.users SET balance = 63 WHERE user_id = 'bob'",
        "order late is CANCELLED (NOT_PAID), but 0.07 of balance is not given back",
        "deductions of cancelled orders that are not given back yet: 1",
    ),
    "each paid order is credited once": (
        "DELETE FROM points.point_records; DELETE FROM points.points",
        "order paid over 10.00 is PAID, but earned no points",
        "paid orders without points yet: 1",
    ),
    "what a user spent = what the paid orders were due": (
        "UPDATE users.users SET spent = 2000 WHERE user_id = 'ada'",
        "user ada has spent 20.00, but the paid orders are 10.00",
        "users with paid orders that are not counted as spent yet: 1",
    ),
    "the log has as many events as there were transitions": (
        "DELETE FROM log.events WHERE event_id = 'lateORDER_CANCELLED'",
        "the log has 11 events, but orders and payments made 12 transitions",
        "the log does not have all events yet",
    ),
    "money in = money out": (
        "INSERT INTO provider.ledger (payment_id, kind, amount) VALUES ('p3', 'CHARGE', 1)",
        "the provider holds 10.01, the payments are 10.00, the paid orders 10.00",
        "the sums at the provider, of the payments and of the orders differ",
    ),
    "the outbox of orders is empty": (
        "INSERT INTO orders.outbox (shard, order_id, event_id, kind, body, delay_ms, created_at) "
        "VALUES (0, 'paid', 'e1', 'ORDER_PAID', '', 0, now() - interval '2 s')",
        "event e1 (ORDER_PAID) of order paid is not sent, for 2.0 s",
        "events that wait in the outbox of orders: 1 (the oldest for 2.0 s)",
    ),
}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A database with the tables of all services."""

    async def create_tables(url: str) -> None:
        for schema, tables in _TABLES.items():
            service = Database(url, schema)
            await service.open(tables)
            await service.close()

    with postgresql() as port:
        url = f"postgresql://shop@127.0.0.1:{port}/shop"
        asyncio.run(create_tables(url))
        yield url


@pytest.fixture
async def shop(database: str) -> AsyncIterator[Any]:
    """A connection in whose transaction everything in the shop is right, but for what a test plants."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await connection.execute(_RIGHT)
        yield connection
        await connection.rollback()


async def test_a_shop_in_which_all_is_right(shop: Any) -> None:
    assert await check_in_transaction(shop, is_final=True) == []
    assert await check_in_transaction(shop, is_final=False) == []


@pytest.mark.parametrize(("rule", "planted"), WRONGS.items(), ids=list(WRONGS))
async def test_a_planted_wrong_is_named(shop: Any, rule: str, planted: tuple[str, str]) -> None:
    await shop.execute(planted[0])
    for is_final in (False, True):
        found = await check_in_transaction(shop, is_final=is_final)
        assert (rule, planted[1], False) in [(each.rule, each.text, each.is_pending) for each in found]


@pytest.mark.parametrize(("rule", "planted"), PENDINGS.items(), ids=list(PENDINGS))
async def test_what_is_on_its_way_is_wrong_only_at_the_end(
    shop: Any, rule: str, planted: tuple[str, str, str]
) -> None:
    await shop.execute(planted[0])
    live = {each.rule: each for each in await check_in_transaction(shop, is_final=False)}
    assert live[rule].text.startswith(planted[2])
    assert live[rule].is_pending and live[rule].count == 1
    final = {each.rule: each for each in await check_in_transaction(shop, is_final=True)}
    assert final[rule].text.startswith(planted[1])
    assert not final[rule].is_pending


@pytest.mark.parametrize(
    ("planted", "text"),
    [
        (
            "DELETE FROM log.events WHERE event_id = 'latePAYMENT_REFUNDED'",
            "order late: PAYMENT_REFUNDED p2 is in the log 0 times, but happened 1 times",
        ),
        (
            "INSERT INTO log.events SELECT 'again', order_id, kind, topic, broker, queue_id, queue_offset, "
            "msg_id, at, stored_at, received_at, way, body FROM log.events WHERE event_id = 'paidORDER_PAID'",
            "order paid: ORDER_PAID  is in the log 2 times, but happened 1 times",
        ),
        (
            "UPDATE log.events SET kind = 'PAYMENT_DECLINED' WHERE event_id = 'paidPAYMENT_PAID'",
            "order paid: PAYMENT_DECLINED p1 is in the log 1 times, but happened 0 times",
        ),
        (
            "UPDATE log.events SET body = '{\"payment_id\": \"p1\"}' WHERE event_id = 'lateREFUND_DUE'",
            "order late: REFUND_DUE p2 is in the log 0 times, but happened 1 times",
        ),
    ],
    ids=["lost", "doubled", "another", "of another payment"],
)
async def test_an_event_that_is_lost_or_doubled_is_named(shop: Any, planted: str, text: str) -> None:
    await shop.execute(planted)
    found = await check_in_transaction(shop, is_final=True)
    assert ("every transition has one event", text) in [(each.rule, each.text) for each in found]


def test_every_rule_has_a_planted_wrong() -> None:
    assert {rule.name for rule in WRONG} == set(WRONGS)
    assert [rule.name for rule in FINAL] == ["every transition has one event"]
    assert {rule.name for rule in PENDING} | {"the outbox of orders is empty"} == set(PENDINGS)


async def test_many_of_a_kind_are_counted_and_the_oldest_are_named(shop: Any) -> None:
    await shop.execute(
        "INSERT INTO provider.callbacks SELECT n::text, 'p1', 'PAID', now() - n * interval '1 s' "
        "FROM generate_series(1, 50) AS n"
    )
    [live] = await check_in_transaction(shop, is_final=False)
    assert (live.count, live.oldest_s, live.ids[0]) == (50, 50.0, "p1")
    final = await check_in_transaction(shop, is_final=True)
    assert sum(each.count for each in final) == 50
    assert final[-1].text == "and 30 more of this kind"


async def test_what_is_on_its_way_for_too_long_is_wrong(shop: Any) -> None:
    """Messages take no minute. Buyers have their time to pay; a callback that is not due yet is not late."""
    await shop.execute(
        "UPDATE orders.orders SET state = 'CONFIRMED', cancelled_at = NULL, "
        "confirmed_at = now() - interval '100 s' WHERE order_id = 'late';"
        "INSERT INTO provider.callbacks VALUES ('p1-2', 'p1', 'PAID', now() + interval '1 hour');"
        "DELETE FROM points.point_records; UPDATE orders.orders SET paid_at = now() - interval '61 s' "
        "WHERE order_id = 'paid'"
    )

    async def late(pay_within_s: float | None) -> set[str]:
        found = await check_in_transaction(shop, is_final=False, pay_within_s=pay_within_s)
        rules = {rule.name for rule in PENDING}
        return {each.rule for each in found if each.rule in rules and not each.is_pending}

    points, order = "each paid order is credited once", "no order is left between states"
    assert await late(None) == set()
    assert await late(50) == {points}
    assert await late(30) == {points, order}


async def test_a_check_sees_one_snapshot_and_changes_nothing(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        assert await check(connection, is_final=True) == []
        cursor = await connection.execute("SHOW transaction_read_only")
        assert await cursor.fetchone() == ("off",)


async def test_services_that_never_ran_are_named(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, dbname="postgres") as connection:
        [live] = await check(connection)
        [final] = await check(connection, is_final=True)
    assert "orders.orders" in live.text and "start all services" in live.text
    assert live.is_pending and not final.is_pending
