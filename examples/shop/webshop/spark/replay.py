"""Replay: what the database should have, computed from the events of the topics.

Only what the shop began with comes from the database: goods delivered, opening balances, coupons. Totals are
computed again from the items of an order, not copied from its events. CHECKS are the tables, each with what
it has to agree with. Their SQL uses these views:

    events        every event once, however often it was sent
    lives         an order, and what became of it
    taken_items   the stock that orders have which are not cancelled
    stored_NAME   a table of the database
    moving        orders that change right now, and their goods, users and coupons: topics and database are
                  not read at the same moment, so these are not compared
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, LiteralString, Self

from webshop.events import Topic
from webshop.money import FREE_SHIPPING_FROM, SHIPPING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from webshop.spark.database import Snapshot

TOPICS: Final = (Topic.ORDERS, Topic.PAYMENTS)
_EVENT: Final = """
    event_id string, kind string, order_id string, at timestamp, way string, user_id string,
    items array<struct<goods_id: string, quantity: bigint, price: bigint>>,
    goods_total bigint, shipping bigint, coupon_id string, coupon_value bigint, balance_paid bigint,
    amount_due bigint, reason string, payment_id string, amount bigint
"""


@dataclass(frozen=True)
class Check:
    """A table of the database, or a topic, and how its rows follow from the topics."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """What is compared."""
    replayed: str
    """Spark's SQL over the views."""
    stored: LiteralString
    """PostgreSQL's SQL; Spark's for a topic."""
    moving: str = "order_id"
    """The column that says whether a row is changing right now."""

    @property
    def is_topic(self) -> bool:
        """Whether the rows are events."""
        return self.table in TOPICS


_LIVES: Final = {
    "first_events": """
        SELECT order_id,
               min_by(struct(user_id, way, items, coupon_id, coupon_value, balance_paid), at) AS first,
               bool_or(kind = 'ORDER_CONFIRMED') AS is_confirmed,
               bool_or(kind = 'ORDER_PAID') AS is_paid,
               bool_or(kind = 'ORDER_CANCELLED') AS is_cancelled,
               max(CASE WHEN kind = 'ORDER_CANCELLED' THEN reason END) AS reason,
               max(CASE WHEN kind = 'ORDER_PAID' THEN payment_id END) AS payment_id
        FROM events WHERE kind LIKE 'ORDER%' GROUP BY order_id
    """,
    "totals": f"""
        SELECT *, CASE WHEN goods_total >= {FREE_SHIPPING_FROM} THEN 0 ELSE {SHIPPING} END AS shipping
        FROM (SELECT *, aggregate(first.items, 0L, (sum, item) -> sum + item.quantity * item.price)
                     AS goods_total FROM first_events)
    """,
    "lives": """
        SELECT order_id, first.*, goods_total, shipping,
               goods_total + shipping - first.coupon_value - first.balance_paid AS amount_due,
               CASE WHEN is_paid THEN 'PAID' WHEN is_cancelled THEN 'CANCELLED'
                    WHEN is_confirmed THEN 'CONFIRMED' ELSE 'NEW' END AS state, reason, payment_id
        FROM totals
    """,
}
_TAKEN_ITEMS: Final = """
    SELECT order_id, item.goods_id, sum(item.quantity) AS quantity
    FROM (SELECT order_id, explode(items) AS item FROM lives WHERE state IN ('CONFIRMED', 'PAID'))
    GROUP BY order_id, item.goods_id
"""
_MOVING: Final = """
    WITH orders AS (
        SELECT order_id FROM events WHERE stored_at > '{since}'
        UNION SELECT order_id FROM lives WHERE state = 'NEW'
        UNION SELECT order_id FROM stored_orders WHERE state = 'NEW' OR changed_at > '{since}'
        UNION SELECT order_id FROM stored_payments WHERE changed_at > '{since}'),
    parts AS (
        SELECT order_id, user_id, coupon_id, items.goods_id AS goods FROM lives
        UNION ALL SELECT order_id, user_id, coupon_id, array() FROM stored_orders
        UNION ALL SELECT order_id, NULL, NULL, array(goods_id) FROM stored_items)
    SELECT 'order_id' AS kind, order_id AS id FROM orders
    UNION SELECT 'user_id', user_id FROM parts JOIN orders USING (order_id)
    UNION SELECT 'coupon_id', coupon_id FROM parts JOIN orders USING (order_id)
    UNION SELECT 'goods_id', explode(goods) FROM parts JOIN orders USING (order_id)
"""

AMOUNTS: Final = ("goods_total", "shipping", "coupon_value", "balance_paid", "amount_due")
CHECKS: Final = (
    Check(
        Topic.ORDERS,
        ("order_id", "kind"),
        ("user_id", "way", "coupon_id", *AMOUNTS),
        "SELECT e.kind, l.* FROM lives l JOIN events e USING (order_id) WHERE e.items IS NOT NULL",
        "SELECT * FROM events WHERE items IS NOT NULL",
    ),
    Check(
        "orders.orders",
        ("order_id",),
        ("user_id", "way", "coupon_id", *AMOUNTS, "state", "reason", "payment_id"),
        "SELECT * FROM lives",
        "SELECT order_id, user_id, way, coupon_id, goods_total, shipping, coupon_value, balance_paid, "
        "amount_due, state, reason, payment_id, "
        "greatest(created_at, confirmed_at, paid_at, cancelled_at) AS changed_at FROM orders.orders",
    ),
    Check(
        "orders.orders (items)",
        ("order_id", "goods_id", "price"),
        ("quantity",),
        "SELECT order_id, item.goods_id, item.price, sum(item.quantity) AS quantity "
        "FROM (SELECT order_id, explode(items) AS item FROM lives) GROUP BY ALL",
        "SELECT order_id, item ->> 'goods_id' AS goods_id, (item ->> 'price')::bigint AS price, "
        "sum((item ->> 'quantity')::int) AS quantity "
        "FROM orders.orders, jsonb_array_elements(items) AS item GROUP BY 1, 2, 3",
    ),
    Check(
        "payments.payments",
        ("payment_id",),
        ("order_id", "user_id", "amount", "way", "state"),
        """
        SELECT p.payment_id, order_id, p.user_id, l.amount_due AS amount, p.way,
               CASE WHEN is_refunded THEN 'REFUNDED' WHEN is_due THEN 'REFUND_DUE' WHEN is_paid THEN 'PAID'
                    WHEN is_declined THEN 'DECLINED' ELSE 'CREATED' END AS state
        FROM (SELECT payment_id, order_id, any_value(user_id) AS user_id, any_value(way) AS way,
                     bool_or(kind = 'PAYMENT_CREATED' OR kind = 'PAYMENT_PAID') AS is_there,
                     bool_or(kind = 'PAYMENT_REFUNDED') AS is_refunded,
                     bool_or(kind = 'REFUND_DUE') AS is_due,
                     bool_or(kind = 'PAYMENT_PAID') AS is_paid,
                     bool_or(kind = 'PAYMENT_DECLINED') AS is_declined
              FROM events WHERE payment_id IS NOT NULL GROUP BY payment_id, order_id) p
        LEFT JOIN lives l USING (order_id) WHERE is_there
        """,
        "SELECT payment_id, order_id, user_id, amount, way, state, "
        "greatest(created_at, paid_at, refunded_at) AS changed_at FROM payments.payments",
    ),
    Check(
        "goods.stock_records",
        ("order_id", "goods_id"),
        ("quantity",),
        "SELECT * FROM taken_items",
        "SELECT order_id, item ->> 'goods_id' AS goods_id, sum((item ->> 'quantity')::int) AS quantity "
        "FROM goods.stock_records, jsonb_array_elements(items) AS item WHERE state = 'TAKEN' GROUP BY 1, 2",
    ),
    Check(
        "goods.goods",
        ("goods_id",),
        ("stock",),
        "SELECT goods_id, any_value(delivered) - coalesce(sum(quantity), 0) AS stock "
        "FROM stored_goods LEFT JOIN taken_items USING (goods_id) GROUP BY goods_id",
        "SELECT goods_id, delivered, stock FROM goods.goods",
        moving="goods_id",
    ),
    Check(
        "coupons.coupon_records",
        ("order_id",),
        ("coupon_id",),
        "SELECT order_id, coupon_id FROM lives "
        "WHERE coupon_id IS NOT NULL AND state IN ('CONFIRMED', 'PAID')",
        "SELECT order_id, coupon_id FROM coupons.coupon_records WHERE state = 'TAKEN'",
    ),
    Check(
        "coupons.coupons",
        ("coupon_id",),
        ("user_id", "value", "used_by"),
        "SELECT coupon_id, coalesce(l.user_id, c.user_id) AS user_id, "
        "coalesce(l.coupon_value, c.value) AS value, l.order_id AS used_by FROM stored_coupons c "
        "LEFT JOIN (SELECT * FROM lives WHERE state IN ('CONFIRMED', 'PAID')) l USING (coupon_id)",
        "SELECT coupon_id, user_id, value, used_by FROM coupons.coupons",
        moving="coupon_id",
    ),
    Check(
        "users.balance_records",
        ("order_id",),
        ("user_id", "amount"),
        "SELECT order_id, user_id, balance_paid AS amount FROM lives "
        "WHERE balance_paid > 0 AND state IN ('CONFIRMED', 'PAID')",
        "SELECT order_id, user_id, amount FROM users.balance_records WHERE state = 'TAKEN'",
    ),
    Check(
        "users.spent_records",
        ("order_id",),
        ("user_id", "amount"),
        "SELECT order_id, user_id, amount_due AS amount FROM lives WHERE state = 'PAID'",
        "SELECT order_id, user_id, amount FROM users.spent_records",
    ),
    Check(
        "users.users",
        ("user_id",),
        ("balance", "spent", "level"),
        """
        SELECT user_id, opening_balance - taken AS balance, spent,
               CASE WHEN spent >= 200000 THEN 'GOLD' WHEN spent >= 50000 THEN 'SILVER' ELSE 'BRONZE' END
                   AS level
        FROM (SELECT user_id, any_value(opening_balance) AS opening_balance,
                     coalesce(sum(balance_paid) FILTER (WHERE state IN ('CONFIRMED', 'PAID')), 0) AS taken,
                     coalesce(sum(amount_due) FILTER (WHERE state = 'PAID'), 0) AS spent
              FROM stored_users LEFT JOIN lives USING (user_id) GROUP BY user_id)
        """,
        "SELECT user_id, opening_balance, balance, spent, level FROM users.users",
        moving="user_id",
    ),
    Check(
        "points.point_records",
        ("order_id",),
        ("user_id", "points"),
        "SELECT order_id, user_id, amount_due DIV 100 AS points FROM lives WHERE state = 'PAID'",
        "SELECT order_id, user_id, points FROM points.point_records",
    ),
    Check(
        "points.points",
        ("user_id",),
        ("points",),
        "SELECT user_id, sum(amount_due DIV 100) AS points FROM lives WHERE state = 'PAID' GROUP BY user_id",
        "SELECT user_id, points FROM points.points",
        moving="user_id",
    ),
)


class Replay:
    """The views, in a session that may go on: use `with`."""

    def __init__(self, spark: SparkSession, snapshot: Snapshot) -> None:
        self._spark = spark
        self._snapshot = snapshot
        self._views: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._views:
            self._spark.catalog.dropTempView(name)

    def make_views(self, messages: DataFrame, *, settle_s: float) -> None:
        """`messages` have the columns `value` (text) and `stored_at`. Orders that have changed within the
        last `settle_s` seconds are moving."""
        # The snapshot begins here, before the topics are read: what comes after it is moving.
        since = self._snapshot.taken_at() - timedelta(seconds=settle_s)
        parsed = messages.selectExpr(f"from_json(value, '{_EVENT}') AS event", "stored_at")
        self._keep("all_events", parsed.selectExpr("event.*", "stored_at"))
        events = self._spark.table("all_events").where("event_id IS NOT NULL AND order_id IS NOT NULL")
        self._keep("events", events.dropDuplicates(["event_id"]))
        for name, query in _LIVES.items():
            self._add(name, self._spark.sql(query))
        self._keep("lives", self._spark.table("lives"))
        self._add("taken_items", self._spark.sql(_TAKEN_ITEMS))
        for check in CHECKS:
            if not check.is_topic:
                self._add(_stored_view(check), self._snapshot.frame(check.stored))
        self._keep("moving", self._spark.sql(_MOVING.format(since=since.isoformat())))

    def replayed_rows(self, check: Check) -> DataFrame:
        """What the topics say."""
        return self._spark.sql(check.replayed)

    def stored_rows(self, check: Check) -> DataFrame:
        """What is stored."""
        return self._spark.sql(check.stored) if check.is_topic else self._spark.table(_stored_view(check))

    def moving(self) -> DataFrame:
        """What is not compared: `kind`, the name of a column, and `id`, its value."""
        return self._spark.table("moving")

    def counts(self) -> dict[str, int]:
        """How much was read."""
        queries = {
            "messages": "all_events",
            "unreadable": "all_events WHERE event_id IS NULL OR order_id IS NULL",
            "events": "events",
            "orders": "lives",
            "moving": "moving WHERE kind = 'order_id'",
        }
        counted = [f"SELECT '{name}' AS name, count(*) AS n FROM {rows}" for name, rows in queries.items()]
        return {row["name"]: row["n"] for row in self._spark.sql(" UNION ALL ".join(counted)).collect()}

    def _add(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._views.append(name)

    def _keep(self, name: str, frame: DataFrame) -> None:
        """Add rows that are computed now, and once: many queries use them."""
        self._add(name, frame.localCheckpoint())


def _stored_view(check: Check) -> str:
    """`stored_orders` for `orders.orders`, `stored_items` for its items."""
    name = check.table.partition(".")[2]
    return "stored_" + (name.partition("(")[2].rstrip(")") if "(" in name else name)
