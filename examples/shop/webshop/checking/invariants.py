"""Checks the shop's invariants: live for the operator's page, at the end of every test, and from a shell.

    await check(connection, pay_within_s=900)    while the shop works: what is on its way for long is wrong
    await check(connection, is_final=True)       when it has come to rest: nothing may be on its way

All rules see the same snapshot, so that what holds between two services is compared at one moment.
Not here: the rules themselves (rules.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import dict_row, scalar_row

from webshop.checking.rules import FINAL, PENDING, WRONG, Rule, outbox_rule
from webshop.money import shown

_MAX_NAMED: Final = 20
_PATIENCE_S: Final = 60.0
_TABLES: Final = (
    *("goods.goods", "goods.stock_records", "coupons.coupons", "coupons.coupon_records", "users.users"),
    *("users.balance_records", "orders.orders", "payments.payments", "points.points", "points.point_records"),
    *("log.events", "provider.charges", "provider.ledger", "provider.callbacks"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that violates a rule, or is on its way to fulfil it (`is_pending`)."""

    rule: str
    text: str
    count: int
    oldest_s: float | None
    is_pending: bool
    ids: tuple[str, ...]


async def check(
    connection: AsyncConnection[Any], *, is_final: bool = False, pay_within_s: float | None = None
) -> list[Finding]:
    """What is wrong and what is on its way; with `is_final` both are wrong. An empty list: everything is
    right, and at rest. Needs a connection that is not in a transaction.

    With `pay_within_s`, the time in which an order has to be paid, what is on its way for a minute longer
    than it may take is wrong too: the shop does not recover by itself. Not for a shop with faults.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return await check_in_transaction(connection, is_final=is_final, pay_within_s=pay_within_s)


async def check_in_transaction(
    connection: AsyncConnection[Any], *, is_final: bool, pay_within_s: float | None = None
) -> list[Finding]:
    """The same for what the transaction of the connection sees."""
    missing = await _missing_tables(connection)
    if missing:
        text = f"the tables {', '.join(missing)} do not exist; start all services once"
        return [Finding("every service has its tables", text, len(missing), None, not is_final, ())]
    outboxes = await _outboxes(connection)
    return [
        finding
        for rule in (*WRONG, *PENDING, *outboxes, *(FINAL if is_final else ()))
        for finding in _findings(rule, await _violations(connection, rule), is_final, pay_within_s)
    ]


def _findings(
    rule: Rule, rows: list[dict[str, Any]], is_final: bool, pay_within_s: float | None
) -> list[Finding]:
    """One finding for each violation; of what is on its way only one, with how many and how old they are."""
    if not rows:
        return []
    count, ages = rows[0]["all_found"], [row["age_s"] for row in rows if row.get("age_s") is not None]
    oldest_s = max(ages, default=None)
    if rule.summary and not is_final:
        text = rule.summary.format(count=count)
        age = "" if oldest_s is None else f" (the oldest for {oldest_s:.1f} s)"
        is_late = _is_late(rule, oldest_s, pay_within_s)
        late = ". That is too long: look at the processes and their logs" if is_late else ""
        ids = tuple(row["id"] for row in rows)
        return [Finding(rule.name, text + age + late, count, oldest_s, not is_late, ids)]
    findings = [
        Finding(rule.name, _shown(rule.text.format(**row)), 1, row.get("age_s"), False, (row["id"],))
        for row in rows
    ]
    if count > len(rows):
        rest = count - len(rows)
        findings.append(Finding(rule.name, f"and {rest} more of this kind", rest, oldest_s, False, ()))
    return findings


def _is_late(rule: Rule, oldest_s: float | None, pay_within_s: float | None) -> bool:
    if oldest_s is None or pay_within_s is None:
        return False
    return oldest_s > _PATIENCE_S + (pay_within_s if rule.is_for_payment else 0)


def _shown(text: str) -> str:
    """A text with its amounts as people read them.

    >>> _shown("payment 7 is over 1450 cents")
    'payment 7 is over 14.50'
    """
    return re.sub(r"(-?\d+) cents", lambda amount: shown(int(amount[1])), text)


async def _violations(connection: AsyncConnection[Any], rule: Rule) -> list[dict[str, Any]]:
    """The oldest rows of a rule's query, with `all_found`, the number of all."""
    age = "round(extract(epoch FROM now() - since), 1)::float8 AS age_s" if rule.summary else "NULL AS age_s"
    order = "since NULLS FIRST, id" if rule.summary else "id"
    query = (
        f"SELECT *, {age}, count(*) OVER () AS all_found FROM ({rule.sql}) AS all_rows "
        f"ORDER BY {order} LIMIT %s"
    )
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(query.encode(), (_MAX_NAMED,))  # bytes: the rules are constants of this package
    return await cursor.fetchall()


async def _missing_tables(connection: AsyncConnection[Any]) -> list[str]:
    cursor = connection.cursor(row_factory=scalar_row)
    await cursor.execute(
        "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL", (list(_TABLES),)
    )
    return await cursor.fetchall()


async def _outboxes(connection: AsyncConnection[Any]) -> list[Rule]:
    """The rules for services that have an outbox."""
    cursor = connection.cursor(row_factory=scalar_row)
    await cursor.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'outbox' ORDER BY schemaname")
    return [outbox_rule(schema) for schema in await cursor.fetchall()]
