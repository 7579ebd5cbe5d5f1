"""The invariants of the shop, each as a query for what violates it.

A rule's query returns one row for each violation: `id`, the values of the rule's text, and for a pending rule
`since`. WRONG must hold in every snapshot of the database: the services commit causes before effects. PENDING
is what an order leaves behind on its way, and must be empty when the shop has come to rest.
Not here: running them (invariants.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """One invariant. `text` describes a row, `summary` any number of rows of a pending rule. Amounts are
    cents in both; they are shown with a point."""

    name: str
    text: str
    sql: str
    summary: str = ""
    is_for_payment: bool = False
    """A pending rule: whether buyers and the provider are waited for, and not only messages."""


_STOCK: Final = (
    Rule(
        "stock is never negative",
        "goods {id}: the stock is {stock}",
        "SELECT goods_id AS id, stock FROM goods.goods WHERE stock < 0",
    ),
    Rule(
        "sold + left = delivered",
        "goods {id}: {delivered} were delivered, but {sold} sold and {stock} left are {difference:+} pieces",
        """
        WITH sold AS (
            SELECT item->>'goods_id' AS goods_id, sum((item->>'quantity')::bigint) AS sold
            FROM goods.stock_records, jsonb_array_elements(items) AS item WHERE state = 'TAKEN' GROUP BY 1
        ), counted AS (
            SELECT goods_id AS id, coalesce(delivered, 0) AS delivered, coalesce(stock, 0) AS stock,
                   coalesce(sold, 0) AS sold
            FROM goods.goods FULL JOIN sold USING (goods_id)
        )
        SELECT *, sold + stock - delivered AS difference FROM counted WHERE delivered <> sold + stock
        """,
    ),
    Rule(
        "stock is taken for what was ordered",
        "order {id}: {taken} of the stock was taken, but {ordered} was ordered",
        """
        SELECT order_id AS id, taken.items::text AS taken, coalesce(orders.items::text, 'nothing') AS ordered
        FROM goods.stock_records AS taken LEFT JOIN orders.orders USING (order_id)
        WHERE taken.state = 'TAKEN' AND taken.items IS DISTINCT FROM orders.items
        """,
    ),
)

_COUPONS: Final = (
    Rule(
        "a coupon is used at most once",
        "coupon {id}: used by {uses} orders: {orders}",
        """
        SELECT coupon_id AS id, count(*) AS uses, string_agg(order_id, ', ' ORDER BY order_id) AS orders
        FROM coupons.coupon_records WHERE state = 'TAKEN' AND coupon_id IS NOT NULL
        GROUP BY 1 HAVING count(*) > 1
        """,
    ),
    Rule(
        "a coupon and its record agree",
        "coupon {id}: marked as used by {used_by}, but the record is of {taken_by}",
        """
        SELECT coupon_id AS id, coalesce(coupon.used_by, 'no order') AS used_by,
               coalesce(record.order_id, 'no order') AS taken_by
        FROM coupons.coupons AS coupon
        FULL JOIN (SELECT * FROM coupons.coupon_records WHERE state = 'TAKEN' AND coupon_id IS NOT NULL)
             AS record USING (coupon_id)
        WHERE coupon.used_by IS DISTINCT FROM record.order_id
        """,
    ),
    Rule(
        "a coupon gives its value",
        "order {id}: coupon {coupon_id} counts {counted} cents, but its value is {value} cents",
        """
        SELECT order_id AS id, coupon_id, coupon_value AS counted, coalesce(value, 0) AS value
        FROM orders.orders LEFT JOIN coupons.coupons USING (coupon_id)
        WHERE coupon_value < 0 OR coupon_value <> least(coalesce(value, 0), goods_total + shipping)
        """,
    ),
)

_BALANCES: Final = (
    Rule(
        "balances = opening balances - what orders took",
        "user {id}: the balance is {balance} cents, but {opening} cents at first less {taken} cents taken "
        "are {expected} cents",
        """
        WITH taken AS (
            SELECT user_id, sum(amount) AS taken FROM users.balance_records WHERE state = 'TAKEN' GROUP BY 1
        ), counted AS (
            SELECT user_id AS id, coalesce(balance, 0) AS balance, coalesce(opening_balance, 0) AS opening,
                   coalesce(taken, 0) AS taken
            FROM users.users FULL JOIN taken USING (user_id)
        )
        SELECT *, opening - taken AS expected FROM counted WHERE balance <> opening - taken OR balance < 0
        """,
    ),
)

_ORDERS: Final = (
    Rule(
        "an order's total = coupon + balance + due",
        "order {id}: goods {goods} cents and shipping {shipping} cents are {total} cents, but coupon "
        "{coupon_value} cents, balance {balance_paid} cents and due {amount_due} cents are {parts} cents",
        """
        SELECT order_id AS id, goods, shipping, goods + shipping AS total, coupon_value, balance_paid,
               amount_due, coupon_value + balance_paid + amount_due AS parts
        FROM (SELECT *, (SELECT sum((item->>'price')::bigint * (item->>'quantity')::bigint)
                         FROM jsonb_array_elements(items) AS item) AS goods FROM orders.orders) AS each
        WHERE goods <> goods_total OR goods + shipping <> coupon_value + balance_paid + amount_due
           OR least(shipping, coupon_value, balance_paid, amount_due) < 0
        """,
    ),
    Rule(
        "a confirmed order has its deductions",
        "order {id} is {state}, but its {what} was not taken: {found} instead of {expected}",
        """
        WITH alive AS (SELECT * FROM orders.orders WHERE state IN ('CONFIRMED', 'PAID'))
        SELECT order_id AS id, alive.state, 'stock' AS what, coalesce(record.state, 'no record') AS found,
               'TAKEN' AS expected
        FROM alive LEFT JOIN goods.stock_records AS record USING (order_id)
        WHERE record.state IS DISTINCT FROM 'TAKEN'
        UNION ALL
        SELECT order_id, alive.state, 'coupon',
               coalesce(record.state || ' ' || record.coupon_id, 'no record'), 'TAKEN ' || alive.coupon_id
        FROM alive LEFT JOIN coupons.coupon_records AS record USING (order_id)
        WHERE alive.coupon_id IS NOT NULL
          AND (record.state, record.coupon_id) IS DISTINCT FROM ('TAKEN', alive.coupon_id)
        UNION ALL
        SELECT order_id, alive.state, 'balance', coalesce(record.state || ' ' || record.amount || ' cents',
               'no record'), 'TAKEN ' || balance_paid || ' cents'
        FROM alive LEFT JOIN users.balance_records AS record USING (order_id)
        WHERE balance_paid > 0 AND (record.state, record.amount, record.user_id)
              IS DISTINCT FROM ('TAKEN', balance_paid, alive.user_id)
        """,
    ),
    Rule(
        "every deduction belongs to an order",
        "order {id}: {what} is taken for it, but there is no such order",
        """
        SELECT order_id AS id, what FROM (
            SELECT order_id, state, 'stock' AS what FROM goods.stock_records
            UNION ALL SELECT order_id, state, 'coupon ' || coupon_id FROM coupons.coupon_records
            UNION ALL SELECT order_id, state, amount || ' cents' FROM users.balance_records
        ) AS taken WHERE state = 'TAKEN'
          AND NOT EXISTS (SELECT FROM orders.orders WHERE orders.order_id = taken.order_id)
        """,
    ),
)

_PAYMENTS: Final = (
    Rule(
        "a payment is over what its order is due",
        "payment {id} is over {amount} cents, but order {order_id} is due {due}",
        """
        SELECT payment.payment_id AS id, order_id, amount,
               coalesce(amount_due || ' cents', 'nothing: there is no such order') AS due
        FROM payments.payments AS payment LEFT JOIN orders.orders USING (order_id)
        WHERE amount IS DISTINCT FROM amount_due
        """,
    ),
    Rule(
        "a paid order has one payment",
        "order {id} is PAID and due {amount_due} cents, but has {paid} paid payments over {cents} cents",
        """
        SELECT order_id AS id, amount_due, count(paid.payment_id) AS paid, coalesce(sum(amount), 0) AS cents
        FROM orders.orders LEFT JOIN (SELECT * FROM payments.payments WHERE state = 'PAID') AS paid
             USING (order_id)
        WHERE orders.state = 'PAID' GROUP BY 1, 2
        HAVING count(paid.payment_id) <> 1 OR min(paid.payment_id) <> min(orders.payment_id)
        """,
    ),
    Rule(
        "only payments that their orders do not need are refunded",
        "payment {id} over {amount} cents is {state}, but order {order_id} is {order_state}",
        """
        SELECT payment.payment_id AS id, amount, payment.state, order_id,
               coalesce(orders.state, 'unknown') AS order_state
        FROM payments.payments AS payment LEFT JOIN orders.orders USING (order_id)
        WHERE payment.state IN ('REFUND_DUE', 'REFUNDED') AND orders.state IS DISTINCT FROM 'CANCELLED'
          AND (orders.state IS DISTINCT FROM 'PAID' OR orders.payment_id = payment.payment_id)
        """,
    ),
)

_PROVIDER: Final = (
    Rule(
        "a payment and its charge agree",
        "payment {id} is {state} over {amount} cents, but its charge at the provider is {charge}",
        """
        SELECT payment_id AS id, coalesce(payment.state, 'unknown') AS state,
               coalesce(payment.amount, 0) AS amount,
               coalesce(charge.state || ' over ' || charge.amount || ' cents', 'missing') AS charge
        FROM payments.payments AS payment FULL JOIN provider.charges AS charge USING (payment_id)
        WHERE payment.amount IS DISTINCT FROM 0 AND (
            payment.state IS NULL OR charge.amount <> payment.amount
            OR (charge.state IS NULL AND payment.state <> 'CREATED')
            OR (charge.state IS NOT NULL AND (payment.state, charge.state) NOT IN (
                ('CREATED', 'ACCEPTED'), ('CREATED', 'PAID'), ('CREATED', 'DECLINED'), ('PAID', 'PAID'),
                ('DECLINED', 'DECLINED'), ('REFUND_DUE', 'PAID'), ('REFUND_DUE', 'REFUNDED'),
                ('REFUNDED', 'REFUNDED'))))
        """,
    ),
    Rule(
        "money moves once for a charge",
        "payment {id}: the charge over {amount} cents is {state}, but the provider's ledger has {charged} "
        "cents in ({charges} times) and {refunded} cents out ({refunds} times)",
        """
        WITH moved AS (
            SELECT payment_id, count(*) FILTER (WHERE kind = 'CHARGE') AS charges,
                   count(*) FILTER (WHERE kind = 'REFUND') AS refunds,
                   coalesce(sum(amount) FILTER (WHERE kind = 'CHARGE'), 0) AS charged,
                   coalesce(sum(amount) FILTER (WHERE kind = 'REFUND'), 0) AS refunded
            FROM provider.ledger GROUP BY 1
        ), counted AS (
            SELECT payment_id AS id, coalesce(amount, 0) AS amount, coalesce(state, 'missing') AS state,
                   coalesce(charges, 0) AS charges, coalesce(refunds, 0) AS refunds,
                   coalesce(charged, 0) AS charged, coalesce(refunded, 0) AS refunded
            FROM provider.charges FULL JOIN moved USING (payment_id)
        )
        SELECT * FROM counted
        WHERE (charges, charged) <> (CASE WHEN state IN ('PAID', 'REFUNDED') THEN 1 ELSE 0 END,
                                     CASE WHEN state IN ('PAID', 'REFUNDED') THEN amount ELSE 0 END)
           OR (refunds, refunded) <> (CASE WHEN state = 'REFUNDED' THEN 1 ELSE 0 END,
                                      CASE WHEN state = 'REFUNDED' THEN amount ELSE 0 END)
        """,
    ),
)

_CREDITS: Final = (
    Rule(
        "points are earned by paid orders",
        "order {id} is {state} and due {due} cents, but earned {points} points",
        """
        SELECT order_id AS id, coalesce(state, 'unknown') AS state, coalesce(amount_due, 0) AS due, points
        FROM points.point_records AS record LEFT JOIN orders.orders USING (order_id)
        WHERE state IS DISTINCT FROM 'PAID' OR points <> amount_due / 100
           OR record.user_id <> orders.user_id
        """,
    ),
    Rule(
        "a user's points = the points of the orders",
        "user {id} has {points} points, but the orders earned {earned}",
        """
        SELECT user_id AS id, coalesce(points.points, 0) AS points, coalesce(earned, 0) AS earned
        FROM points.points FULL JOIN (
            SELECT user_id, sum(points) AS earned FROM points.point_records GROUP BY 1
        ) AS records USING (user_id)
        WHERE coalesce(points.points, 0) <> coalesce(earned, 0)
        """,
    ),
)

_LEVELS: Final = (
    Rule(
        "a user's level is that of what was spent",
        "user {id} has spent {spent} cents, but is {level} instead of {expected}",
        """
        SELECT * FROM (SELECT user_id AS id, spent, level, CASE WHEN spent >= 200000 THEN 'GOLD'
            WHEN spent >= 50000 THEN 'SILVER' ELSE 'BRONZE' END AS expected FROM users.users) AS each
        WHERE level <> expected
        """,
    ),
)

WRONG: Final = (*_STOCK, *_COUPONS, *_BALANCES, *_ORDERS, *_PAYMENTS, *_PROVIDER, *_CREDITS, *_LEVELS)
"""What never holds, not even for a moment."""

_ON_THE_WAY: Final = (
    Rule(
        "no order is left between states",
        "order {id} over {due} cents is still {state}, for {age_s} s",
        """
        SELECT order_id AS id, state, amount_due AS due, coalesce(confirmed_at, created_at) AS since
        FROM orders.orders WHERE state IN ('NEW', 'CONFIRMED')
        """,
        "orders that are not paid or cancelled yet: {count}",
        is_for_payment=True,
    ),
    Rule(
        "no payment is left between states",
        "payment {id} over {amount} cents of order {order_id} is still {state}, for {age_s} s",
        """
        SELECT payment_id AS id, order_id, state, amount, coalesce(paid_at, created_at) AS since
        FROM payments.payments WHERE state IN ('CREATED', 'REFUND_DUE')
        """,
        "payments that are not settled yet: {count}",
        is_for_payment=True,
    ),
    Rule(
        "every payment has reached its order",
        "payment {id} over {amount} cents is PAID, but order {order_id} is {state}, for {age_s} s",
        """
        SELECT payment.payment_id AS id, amount, order_id, orders.state, payment.paid_at AS since
        FROM payments.payments AS payment JOIN orders.orders USING (order_id)
        WHERE payment.state = 'PAID' AND orders.state <> 'PAID'
        """,
        "payments that have not reached their orders yet: {count}",
    ),
    Rule(
        "every callback is answered",
        "payment {id}: callback {callback_id} ({kind}) is not answered, for {age_s} s",
        "SELECT payment_id AS id, callback_id, kind, least(due_at, now()) AS since FROM provider.callbacks",
        "callbacks of the provider that are not answered yet: {count}",
    ),
)

_UNDONE: Final = (
    Rule(
        "no deduction of a cancelled order is left",
        "order {id} is CANCELLED ({reason}), but {what} is not given back, for {age_s} s",
        """
        SELECT order_id AS id, coalesce(reason, 'no reason') AS reason, what, cancelled_at AS since
        FROM orders.orders JOIN (
            SELECT order_id, state, 'the stock ' || items::text AS what FROM goods.stock_records
            UNION ALL SELECT order_id, state, 'coupon ' || coupon_id FROM coupons.coupon_records
            UNION ALL SELECT order_id, state, amount || ' cents of balance' FROM users.balance_records
        ) AS taken USING (order_id) WHERE orders.state = 'CANCELLED' AND taken.state = 'TAKEN'
        """,
        "deductions of cancelled orders that are not given back yet: {count}",
    ),
    Rule(
        "each paid order is credited once",
        "order {id} over {due} cents is PAID, but earned no points, for {age_s} s",
        """
        SELECT order_id AS id, amount_due AS due, paid_at AS since FROM orders.orders
        WHERE state = 'PAID'
          AND NOT EXISTS (SELECT FROM points.point_records AS record WHERE record.order_id = orders.order_id)
        """,
        "paid orders without points yet: {count}",
    ),
    Rule(
        "what a user spent = what the paid orders were due",
        "user {id} has spent {spent} cents, but the paid orders are {due} cents",
        """
        SELECT user_id AS id, spent, coalesce(due, 0) AS due, newest AS since
        FROM users.users LEFT JOIN (
            SELECT user_id, sum(amount_due) AS due, max(paid_at) AS newest
            FROM orders.orders WHERE state = 'PAID' GROUP BY 1
        ) AS paid USING (user_id) WHERE spent <> coalesce(due, 0)
        """,
        "users with paid orders that are not counted as spent yet: {count}",
    ),
    Rule(
        "money in = money out",
        "the provider holds {held} cents, the payments are {payments} cents, the paid orders {due} cents",
        """
        SELECT '' AS id, * FROM (SELECT
            (SELECT coalesce(sum(CASE kind WHEN 'CHARGE' THEN amount ELSE -amount END), 0)
             FROM provider.ledger) AS held,
            (SELECT coalesce(sum(amount), 0) FROM payments.payments WHERE state = 'PAID') AS payments,
            (SELECT coalesce(sum(amount_due), 0) FROM orders.orders WHERE state = 'PAID') AS due,
            NULL::timestamptz AS since) AS sums
        WHERE held <> payments OR payments <> due
        """,
        "the sums at the provider, of the payments and of the orders differ while payments are on their way",
    ),
)

# The transitions that the tables show, and the events in the log; those of an order have no payment_id.
_TRANSITIONS: Final = """
WITH expected AS (
    SELECT order_id, '' AS payment_id, kind FROM orders.orders, LATERAL (VALUES
        ('ORDER_CREATED', created_at), ('ORDER_CONFIRMED', confirmed_at), ('ORDER_PAID', paid_at),
        ('ORDER_CANCELLED', cancelled_at)) AS transitions (kind, at) WHERE at IS NOT NULL
    UNION ALL
    SELECT order_id, payment_id, kind FROM payments.payments, LATERAL (VALUES
        ('PAYMENT_CREATED', amount > 0), ('PAYMENT_PAID', paid_at IS NOT NULL),
        ('PAYMENT_DECLINED', state = 'DECLINED'), ('REFUND_DUE', state IN ('REFUND_DUE', 'REFUNDED')),
        ('PAYMENT_REFUNDED', state = 'REFUNDED')) AS transitions (kind, is_done) WHERE is_done
), logged AS (
    SELECT order_id, CASE WHEN topic = 'shop-payments' OR kind = 'REFUND_DUE' THEN body->>'payment_id'
           ELSE '' END AS payment_id, kind, count(*) AS events
    FROM log.events WHERE kind <> 'PAYMENT_DUE' GROUP BY 1, 2, 3
)
"""
_LOGGED: Final = (
    Rule(
        "the log has as many events as there were transitions",
        "the log has {logged} events, but orders and payments made {made} transitions",
        """
        SELECT '' AS id, *, NULL::timestamptz AS since FROM (SELECT
            (SELECT count(created_at) + count(confirmed_at) + count(paid_at) + count(cancelled_at)
             FROM orders.orders)
            + (SELECT count(*) FILTER (WHERE amount > 0) + count(paid_at)
                      + count(*) FILTER (WHERE state IN ('DECLINED', 'REFUND_DUE', 'REFUNDED'))
                      + count(*) FILTER (WHERE state = 'REFUNDED') FROM payments.payments) AS made,
            (SELECT count(*) FROM log.events WHERE kind <> 'PAYMENT_DUE') AS logged) AS counts
        WHERE made <> logged
        """,
        "the log does not have all events yet",
    ),
)
_EVENTS: Final = (
    Rule(
        "every transition has one event",
        "order {id}: {kind} {payment_id} is in the log {events} times, but happened {expected} times",
        f"""
        {_TRANSITIONS}
        SELECT order_id AS id, payment_id, kind, coalesce(events, 0) AS events,
               CASE WHEN expected.kind IS NULL THEN 0 ELSE 1 END AS expected
        FROM expected FULL JOIN logged USING (order_id, payment_id, kind)
        WHERE events IS DISTINCT FROM 1 OR expected.kind IS NULL
        """,
    ),
)

FINAL: Final = _EVENTS
"""What holds when all messages have arrived. It joins every event: too slow for a shop that works."""
PENDING: Final = (*_ON_THE_WAY, *_UNDONE, *_LOGGED)
"""What holds for a while only, until messages and callbacks have arrived."""


def outbox_rule(schema: str) -> Rule:
    """The same for the outbox of a service."""
    return Rule(
        f"the outbox of {schema} is empty",
        "event {id} ({kind}) of order {order_id} is not sent, for {age_s} s",
        f"SELECT event_id AS id, kind, order_id, created_at AS since FROM {schema}.outbox",
        f"events that wait in the outbox of {schema}: {{count}}",
    )
