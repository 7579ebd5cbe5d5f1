"""The shop's audit, over a real PostgreSQL: it agrees with the right rows, and names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")
psycopg = need_module("psycopg")
need_module("psycopg_pool")

from tests.e2e.client.kit.database_servers import postgresql  # noqa: E402
from tests.spark.shop.generated_orders import Order, database_rows, events_of, make_orders  # noqa: E402
from webshop.events import Topic, message_of  # noqa: E402
from webshop.settings import Settings  # noqa: E402
from webshop.spark import audit as audits  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVICES = ("goods", "coupons", "users", "orders", "payments", "points")


@pytest.fixture(scope="module")
def orders() -> list[Order]:
    return make_orders(40, seed=11)


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    """Those of the command, in a session that goes on."""
    for name, value in audits.SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name in audits.SETTINGS:
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def namesrv(orders: list[Order]) -> Iterator[str]:
    with LocalCluster() as cluster:
        for topic in Topic:
            cluster.create_topic(topic, queues=4)
        with Producer("shop", namesrv=cluster.namesrv) as producer:
            for event in events_of(orders):
                producer.send(message_of(event), sharding_key=event.order_id)
        yield cluster.namesrv


@pytest.fixture(scope="module")
def database(orders: list[Order]) -> Iterator[str]:
    """The tables of the services, with the rows that they would have."""
    with postgresql() as port:
        address = f"postgresql://shop@127.0.0.1:{port}/shop"
        with psycopg.connect(address) as connection:
            for name in SERVICES:
                connection.execute(f"CREATE SCHEMA {name}; SET search_path TO {name}")
                connection.execute(import_module(f"webshop.{name}.tables").TABLES)
            for table, rows in database_rows(orders).items():
                insert(connection, table, rows)
        yield address


def insert(connection: Any, table: str, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    places = ", ".join(f"%({name})s" for name in names)
    connection.cursor().executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})", rows)


def test_the_audit_agrees_and_names_each_planted_fault(
    spark: SparkSession,
    namesrv: str,
    database: str,
    orders: list[Order],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = audits.audit(spark, namesrv=namesrv, database=database, settle_s=0)
    assert report.disagreements == []
    assert report.is_right and report.lines()[-1] == "audit: topics and database agree"
    assert report.counts["orders"] == report.rows["orders.orders"] == len(orders)
    assert report.counts["events"] == sum(len(order.events) for order in orders) < report.counts["messages"]
    assert report.counts["moving"] == 0 and all(report.rows[check.table] for check in audits.CHECKS)

    paid = next(order for order in orders if order.life == "paid" and order.coupon and order.balance_paid)
    lost = next(order for order in orders if order.state == "PAID" and order is not paid)
    faults = {
        # A cent too much, in a way that every check of the database itself allows.
        f"UPDATE orders.orders SET balance_paid = balance_paid + 1, amount_due = amount_due - 1 "
        f"WHERE order_id = '{paid.order_id}'": [
            ("orders.orders", paid.order_id, "amount_due", paid.amount_due, paid.amount_due - 1),
            ("orders.orders", paid.order_id, "balance_paid", paid.balance_paid, paid.balance_paid + 1),
        ],
        f"UPDATE payments.payments SET amount = amount + 1 WHERE order_id = '{paid.order_id}'": [
            ("payments.payments", paid.order_id, "amount", paid.amount_due, paid.amount_due + 1)
        ],
        "UPDATE goods.goods SET stock = stock - 1 WHERE goods_id = 'goods-3'": [
            ("goods.goods", None, "stock", stock(orders, "goods-3"), stock(orders, "goods-3") - 1)
        ],
        f"UPDATE coupons.coupons SET used_by = NULL WHERE used_by = '{paid.order_id}'": [
            ("coupons.coupons", None, "used_by", paid.order_id, None)
        ],
        f"DELETE FROM points.point_records WHERE order_id = '{lost.order_id}'": [
            ("points.point_records", lost.order_id, "the row", "there is one", "there is none")
        ],
        f"UPDATE users.balance_records SET state = 'RETURNED' WHERE order_id = '{paid.order_id}'": [
            ("users.balance_records", paid.order_id, "the row", "there is one", "there is none")
        ],
        "UPDATE points.points SET points = points + 1 WHERE user_id = 'user-2'": [
            ("points.points", None, "points", points(orders, "user-2"), points(orders, "user-2") + 1)
        ],
    }
    # An order that changes right now is left out, and so are its goods and its user.
    moving = next(
        order
        for order in orders
        if order not in (paid, lost) and order.user_id != "user-2"
        and all(item.goods_id != "goods-3" for item in order.items)
    )  # fmt: skip
    faults[
        "UPDATE orders.orders SET balance_paid = balance_paid - 1, amount_due = amount_due + 1, "
        f"cancelled_at = now() + interval '1 hour' WHERE order_id = '{moving.order_id}'"
    ] = []
    with psycopg.connect(database) as connection:
        for fault in faults:
            assert connection.execute(fault).rowcount == 1
    with Producer("shop", namesrv=namesrv) as producer:
        producer.send(Message(Topic.PAYMENTS, b"not an event"))
    file = tmp_path / "settings.json"
    Settings(namesrv=namesrv, database=database, services={}, provider_secret="-", folder="-").save(file)
    assert audits.main(["--settings", str(file), "--settle", "0", "--json"]) == 1
    read = json.loads(capsys.readouterr().out)
    wrong = [audits.Disagreement(**each) for each in read["disagreements"]]
    report = audits.Report(read["counts"], read["rows"], wrong)
    found = {
        (each.table, each.order_id, each.column, each.replayed, each.stored) for each in report.disagreements
    }
    expected = {
        (table, order_id, column, text(replayed), text(stored))
        for rows in faults.values()
        for table, order_id, column, replayed, stored in rows
    }
    assert found == expected and not report.is_right
    assert report.counts["moving"] == report.counts["unreadable"] == 1
    lines = "\n".join(report.lines())
    cents = (
        f"the topics say {paid.amount_due} ({paid.amount_due / 100:,.2f}), stored is {paid.amount_due + 1} "
    )
    assert f"DISAGREEMENT order {paid.order_id} (payment_id = " in lines and cents in lines
    assert "DISAGREEMENT goods_id = goods-3: goods.goods, column stock: the topics say" in lines
    assert read["is_right"] is False


def test_an_audit_without_settings_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert audits.main(["--settings", "nowhere.json"]) == 2
    assert "audit: settings nowhere.json: " in capsys.readouterr().err


def stock(orders: list[Order], goods_id: str) -> int:
    rows = database_rows(orders)["goods.goods"]
    return next(int(row["stock"]) for row in rows if row["goods_id"] == goods_id)


def points(orders: list[Order], user_id: str) -> int:
    rows = database_rows(orders)["points.points"]
    return next(int(row["points"]) for row in rows if row["user_id"] == user_id)


def text(value: object) -> str | None:
    return None if value is None else str(value)
