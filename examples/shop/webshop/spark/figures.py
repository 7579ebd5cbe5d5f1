"""Figures: what Spark's pipeline (pipelines/figures.yaml) keeps in Parquet, for the shop's page.

Reads files with pyarrow, without Spark: a snapshot of each table, whatever Spark writes meanwhile. It blocks;
call it in a thread. Times are ISO 8601 in UTC, amounts are cents.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kourou.errors import KourouError
from kourou.spark import parquet_files

_log = logging.getLogger(__name__)

Row = dict[str, Any]
_TABLES: Final = ("sales", "funnel", "top_goods", "late_payments", "fraud_hints")
_STAGES: Final = {
    "created": "ORDER_CREATED",
    "confirmed": "ORDER_CONFIRMED",
    "paid": "ORDER_PAID",
    "cancelled": "ORDER_CANCELLED",
}
_MINUTES: Final = 60
_GOODS: Final = 10
_NEWEST: Final = 20


def read(folder: str | Path) -> dict[str, Any]:
    """The current figures; {} while there are none. A table that is missing, or cannot be read, is empty."""
    folders = {name: Path(folder) / name for name in _TABLES}
    written = [at for each in folders.values() if (at := _written_s(each)) is not None]
    return figures({name: _rows(each) for name, each in folders.items()}, max(written)) if written else {}


def figures(tables: Mapping[str, list[Row]], written_s: float) -> dict[str, Any]:
    """What the page shows of the tables' rows."""
    orders = {row["kind"]: row["orders"] for row in tables["funnel"]}
    late = sorted(tables["late_payments"], key=lambda row: row["paid_at"], reverse=True)
    goods = sorted(tables["top_goods"], key=lambda row: (-row["quantity"], -row["amount"], row["goods_id"]))
    return {
        "as_of": _text(datetime.fromtimestamp(written_s, UTC)),
        "sales": [
            {"minute": _text(row["minute"]), "orders": row["orders"], "amount": row["amount"]}
            for row in sorted(tables["sales"], key=lambda row: row["minute"])[-_MINUTES:]
        ],
        "funnel": {stage: orders.get(kind, 0) for stage, kind in _STAGES.items()},
        "top_goods": [
            {"goods_id": row["goods_id"], "name": None, "quantity": row["quantity"], "amount": row["amount"]}
            for row in goods[:_GOODS]
        ],
        "late_payments": [
            {
                "order_id": row["order_id"],
                "payment_id": row["payment_id"],
                "amount": row["amount"],
                "cancelled_at": _text(row["cancelled_at"]),
                "paid_at": _text(row["paid_at"]),
            }
            for row in late[:_NEWEST]
        ],
        "late_total": {"payments": len(late), "amount": sum(row["amount"] for row in late)},
        "fraud_hints": _hints(tables["fraud_hints"]),
    }


def _hints(rows: list[Row]) -> list[Row]:
    """One for each user: the windows overlap, and the one with the most cancelled orders says enough."""
    most: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: (row["cancelled"], row["began"])):
        most[row["user_id"]] = row
    hints = sorted(most.values(), key=lambda row: (-row["cancelled"], row["user_id"]))
    return [
        {
            "user_id": row["user_id"],
            "cancelled": row["cancelled"],
            "from": _text(row["began"]),
            "to": _text(row["ended"]),
        }
        for row in hints[:_NEWEST]
    ]


def _written_s(table: Path) -> float | None:
    """The time of the table's last commit."""
    try:
        return (table / "_kourou" / "log").stat().st_mtime
    except OSError:
        return None


def _rows(folder: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return [row for path in parquet_files(folder) for row in pq.read_table(path).to_pylist()]
    except (KourouError, OSError, pa.ArrowException) as error:
        _log.warning("figures: %s cannot be read now: %s", folder, error)
        return []


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
