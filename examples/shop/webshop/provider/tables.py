"""What the provider remembers, so that it goes on after a kill: charges, money that moved, callbacks to make.

A callback is claimed by moving its time into the future, and deleted when it is answered. If the process dies
in between, it is due again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, LiteralString

from psycopg.types.json import Jsonb

from webshop.callbacks import CallbackKind
from webshop.kit.database import Connection, Row
from webshop.kit.rows import insert_row
from webshop.provider.domain import Behaviour

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS charges (
    payment_id  text PRIMARY KEY,
    amount      bigint NOT NULL,
    state       text NOT NULL CHECK (state IN ('ACCEPTED', 'PAID', 'DECLINED', 'REFUNDED')),
    callback    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    refunded_at timestamptz
);
CREATE TABLE IF NOT EXISTS ledger (
    entry      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id text NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('CHARGE', 'REFUND')),
    amount     bigint NOT NULL,
    at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS ledger_of_a_payment ON ledger (payment_id);
CREATE TABLE IF NOT EXISTS callbacks (
    callback_id text PRIMARY KEY,
    payment_id  text NOT NULL,
    kind        text NOT NULL,
    due_at      timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS callbacks_by_time ON callbacks (due_at);
CREATE TABLE IF NOT EXISTS behaviour (name text PRIMARY KEY, fields jsonb NOT NULL);
"""


async def read_behaviour(connection: Connection) -> Behaviour:
    """How the provider behaves; the default until it was changed."""
    row = await (await connection.execute("SELECT fields FROM behaviour")).fetchone()
    return Behaviour(**row.fields) if row else Behaviour()


async def write_behaviour(connection: Connection, behaviour: Behaviour) -> None:
    """Change how the provider behaves, for restarts too."""
    await connection.execute(
        "INSERT INTO behaviour VALUES ('now', %s) ON CONFLICT (name) DO UPDATE SET fields = excluded.fields",
        [Jsonb(asdict(behaviour))],
    )


async def insert_charge(
    connection: Connection,
    payment_id: str,
    amount: int,
    callback: str,
    planned: Sequence[tuple[CallbackKind, int]],
) -> None:
    """Accept a charge and plan its callbacks: kinds, and delays in ms. Nothing changes if it is there."""
    columns = {"payment_id": payment_id, "amount": amount, "callback": callback, "state": "ACCEPTED"}
    if await insert_row(connection, "charges", **columns):
        await connection.cursor().executemany(
            "INSERT INTO callbacks (callback_id, payment_id, kind, due_at) "
            "VALUES (%s, %s, %s, now() + %s * interval '1 ms')",
            [
                (f"{payment_id}-{n}", payment_id, kind, delay_ms)
                for n, (kind, delay_ms) in enumerate(planned, 1)
            ],
        )


async def find_charge(connection: Connection, payment_id: str) -> Row | None:
    """The charge of a payment."""
    found = await connection.execute("SELECT * FROM charges WHERE payment_id = %s", [payment_id])
    return await found.fetchone()


async def claim_due(connection: Connection, *, limit: int, lease_s: float) -> list[Row]:
    """The callbacks that are due. They are due again after the lease, unless they are deleted until then.

    Before a result is reported it is a fact here: the charge ends, and the money moves, with the claim.
    """
    cursor = await connection.execute(
        "WITH due AS (SELECT callback_id FROM callbacks WHERE due_at <= now() ORDER BY due_at LIMIT %s "
        "FOR UPDATE SKIP LOCKED) "
        "UPDATE callbacks AS claimed SET due_at = now() + %s * interval '1 s' FROM due, charges AS charge "
        "WHERE claimed.callback_id = due.callback_id AND charge.payment_id = claimed.payment_id "
        "RETURNING claimed.callback_id, claimed.payment_id, claimed.kind, charge.amount, charge.callback",
        [limit, lease_s],
    )
    claimed = await cursor.fetchall()
    results = {each.payment_id: each.kind for each in claimed if each.kind != CallbackKind.PROCESSING}
    await connection.cursor().executemany(
        "WITH ended AS (UPDATE charges SET state = %s, ended_at = now() "
        "WHERE payment_id = %s AND state = 'ACCEPTED' RETURNING *) "
        "INSERT INTO ledger (payment_id, kind, amount) "
        "SELECT payment_id, 'CHARGE', amount FROM ended WHERE state = 'PAID'",
        [(kind, payment_id) for payment_id, kind in sorted(results.items())],
    )
    return claimed


async def delete_callbacks(connection: Connection, callback_ids: Sequence[str]) -> None:
    """Forget callbacks that are answered."""
    await connection.execute("DELETE FROM callbacks WHERE callback_id = ANY(%s)", [list(callback_ids)])


async def next_due_s(connection: Connection) -> float | None:
    """In how many seconds the next callback is due; None if none is planned."""
    cursor = await connection.execute(
        "SELECT extract(epoch FROM min(due_at) - now())::float8 AS seconds FROM callbacks"
    )
    row = await cursor.fetchone()
    return row.seconds if row else None


async def refund(connection: Connection, payment_id: str) -> None:
    """Pay back a charge that was paid, and was not paid back yet."""
    await connection.execute(
        "WITH refunded AS (UPDATE charges SET state = 'REFUNDED', refunded_at = now() "
        "WHERE payment_id = %s AND state = 'PAID' RETURNING *) "
        "INSERT INTO ledger (payment_id, kind, amount) SELECT payment_id, 'REFUND', amount FROM refunded",
        [payment_id],
    )
