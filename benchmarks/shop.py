"""The shop (examples/shop): orders a second from the buyer's request to PAID, and what limits them.

    python -m benchmarks shop                          both ways, 2,000 orders each
    python -m benchmarks shop --orders 500 --no-sync   without syncing commits to disk

Each way runs in a new shop: database, broker, services and buyers, all on this machine. Orders a second are
those of the middle four fifths of the run; processor time of each process is per order. Result: printed as
Markdown. Needs PostgreSQL and the packages of the shop (`make shop` sets them up).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "shop"))

import psycopg  # noqa: E402
from psycopg.rows import namedtuple_row  # noqa: E402

from benchmarks._broker_report import machine  # noqa: E402
from benchmarks._cpu_time import children_s, own_s  # noqa: E402
from webshop.checking.invariants import check  # noqa: E402
from webshop.running.shop import Shop, ShopOptions  # noqa: E402
from webshop.running.supervisor import State  # noqa: E402

WAYS = ("transaction", "outbox")
PAY_WITHIN_S = 20.0
THROUGHPUT = """
WITH bounds AS (
    SELECT percentile_disc(0.1) WITHIN GROUP (ORDER BY paid_at) AS low,
           percentile_disc(0.9) WITHIN GROUP (ORDER BY paid_at) AS high
    FROM orders.orders WHERE state = 'PAID')
SELECT extract(epoch FROM high - low)::float8 AS seconds,
       (SELECT count(*) FROM orders.orders WHERE paid_at BETWEEN low AND high) AS paid,
       (SELECT count(*) FROM orders.orders WHERE created_at BETWEEN low AND high) AS placed FROM bounds
"""
STEPS = {
    "placed, until CONFIRMED": "SELECT confirmed_at - created_at AS took FROM orders.orders",
    "PAID: callback to order": """
        SELECT orders.paid_at - payments.paid_at AS took
        FROM orders.orders JOIN payments.payments USING (order_id) WHERE orders.state = 'PAID'""",
    "callback, answered": "SELECT took_ms * interval '1 ms' AS took FROM payments.callbacks WHERE is_first",
}


@dataclass(frozen=True)
class Run:
    """What one way took."""

    way: str
    paid_per_s: float
    placed_per_s: float
    cpu_ms: dict[str, float]
    """Of each process, for each order."""
    cores: float
    """In use, of all processes together."""
    steps_ms: dict[str, tuple[float, float]]
    """Median and 99th percentile."""


async def measure(way: str, options: argparse.Namespace, folder: Path) -> Run:
    """Run a shop until its buyers are done."""
    shop_options = ShopOptions(
        folder=folder,
        way=way,
        orders=options.orders,
        buyers=options.buyers,
        seed=options.seed,
        pay_within_s=PAY_WITHIN_S,
        has_spark=False,
        is_durable=not options.no_sync,
        starts_buyers=False,
    )
    async with Shop(shop_options) as shop:
        before = _cpu_s(shop)
        buyers = shop.add_buyers()
        busy: dict[str, float] = {}
        began = asyncio.get_running_loop().time()
        while buyers.state is not State.FINISHED:
            for name, seconds in _cpu_s(shop).items():
                busy[name] = max(busy.get(name, 0.0), seconds)  # nothing is known of one that has ended
            await asyncio.sleep(0.2)
        wall_s = asyncio.get_running_loop().time() - began
        if buyers.last_exit != "exit code 0":
            raise SystemExit(f"the buyers did not succeed; see {buyers.log}")
        return await _run(shop, way, busy, before, wall_s)


def _cpu_s(shop: Shop) -> dict[str, float]:
    """Processor time of the processes, of their children too."""
    return {
        name: own_s(process.pid) + children_s(process.pid)
        for name, process in shop.supervisor.processes.items()
        if process.pid is not None
    }


async def _run(shop: Shop, way: str, busy: dict[str, float], before: dict[str, float], wall_s: float) -> Run:
    url = shop.settings.database
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, row_factory=namedtuple_row
    ) as connection:
        wrong = [finding.text for finding in await check(connection) if not finding.is_pending]
        if wrong:
            raise SystemExit("\n".join(wrong))
        rate = await _one(connection, THROUGHPUT)
        orders = (await _one(connection, "SELECT count(*) AS n FROM orders.orders")).n
        steps = {}
        for name, query in STEPS.items():
            row = await _one(
                connection,
                "SELECT extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY took))::float8 * 1000 "
                "AS p50, extract(epoch FROM percentile_cont(0.99) WITHIN GROUP (ORDER BY took))::float8 "
                f"* 1000 AS p99 FROM ({query}) AS took",
            )
            steps[name] = (row.p50, row.p99)
    used = {name: seconds - before.get(name, 0.0) for name, seconds in busy.items()}
    return Run(
        way,
        rate.paid / rate.seconds,
        rate.placed / rate.seconds,
        {name: seconds * 1000 / orders for name, seconds in used.items()},
        sum(used.values()) / wall_s,
        steps,
    )


async def _one(connection: psycopg.AsyncConnection[Any], query: str) -> Any:
    row = await (await connection.execute(query)).fetchone()  # type: ignore[call-overload]
    assert row is not None
    return row


def report(runs: list[Run], options: argparse.Namespace) -> str:
    """The runs as Markdown."""
    names = sorted(runs[0].cpu_ms, key=lambda name: -runs[0].cpu_ms[name])
    heads = " | ".join(run.way for run in runs)
    lines = [f"| | {heads} |", "|---" * (len(runs) + 1) + "|"]

    def row(name: str, texts: list[str]) -> None:
        lines.append(f"| {name} | {' | '.join(texts)} |")

    row("orders placed a second", [f"{run.placed_per_s:.1f}" for run in runs])
    row("orders paid a second", [f"{run.paid_per_s:.1f}" for run in runs])
    row("cores in use, mean of the whole run", [f"{run.cores:.2f}" for run in runs])
    for name in runs[0].steps_ms:
        texts = [f"{run.steps_ms[name][0]:.1f}, {run.steps_ms[name][1]:.1f} ms" for run in runs]
        row(f"{name}: p50, p99", texts)
    row("processor time of an order", [f"{sum(run.cpu_ms.values()):.1f} ms" for run in runs])
    for name in names:
        row(f"… {name}", [f"{run.cpu_ms.get(name, 0.0):.1f} ms" for run in runs])
    durable = "not synced" if options.no_sync else "synced to disk"
    head = f"{options.orders} orders by {options.buyers} buyers, commits {durable}; {machine()}"
    return "\n".join([head, "", *lines])


def main() -> None:
    """Measure, and print the report."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m benchmarks shop", description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=2_000)
    parser.add_argument("--buyers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-sync", action="store_true", help="commits are not synced to disk")
    options = parser.parse_args()
    runs = []
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="kourou-shop-") as name:
            Path(name).chmod(0o755)  # PostgreSQL may run as another user
            runs.append(asyncio.run(measure(way, options, Path(name) / "shop")))
    print(report(runs, options))


if __name__ == "__main__":
    main()
