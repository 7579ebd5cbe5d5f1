"""The last part of the demo: a topic as a DataFrame of Spark (spark_job.py), in a process of its own.

Without PySpark, or Java for it, one line says how to install them, and the demo succeeds.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kourou.cli.demo.spark_job import TOPIC
from kourou.client.producer.producer import AsyncProducer
from kourou.errors import ConfigError, KourouError
from kourou.protocol.message import Message
from kourou.spark.java import find_java

_LIMIT_S: Final = 90.0
"""It takes about twenty seconds, mostly for starting Java."""
_INSTALL: Final = "pip install 'kourou[spark]' (about 460 MB)"
_ITEMS: Final = ("tea", "coffee", "cocoa", "honey")
_ORDERS: Final = 360
_EVERY_S: Final = 10
_MAX_CONCURRENT_SENDS: Final = 60


def spark_problem(environ: Mapping[str, str] = os.environ) -> str | None:
    """What Spark is missing, and how to install it; None if nothing is missing."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed; {_INSTALL}"
    try:
        find_java(environ)
    except ConfigError as error:
        return error.problems[0]
    return None


async def show_spark(console: Console, namesrv: str, folder: Path) -> None:
    """Send an hour of orders, let Spark aggregate them, and show the result. KourouError if it is wrong."""
    problem = spark_problem()
    if problem is not None:
        console.print(f"Spark: skipped: {problem}", soft_wrap=True, markup=False)
        return
    began = time.monotonic()
    orders = _orders()
    await _send(namesrv, orders)
    console.print(f"starting Spark to read {len(orders)} orders of topic {TOPIC} …")
    rows = await _windows(namesrv, folder)
    _check(rows, orders)
    console.print(_table(rows))
    console.print(
        f"Spark: {len(orders)} orders in {len(rows)} windows, by SQL; written as Parquet and read back, in "
        f"{time.monotonic() - began:.0f} seconds.",
        soft_wrap=True,
    )


def _orders() -> list[dict[str, Any]]:
    """The orders of the last hour."""
    first_s = int(time.time()) - _ORDERS * _EVERY_S
    return [
        {
            "id": f"order-{number}",
            "item": _item(number),
            "amount": f"{2 + number % 7}.{number % 4 * 25:02d}",
            "at": datetime.fromtimestamp(first_s + number * _EVERY_S, UTC).isoformat(),
        }
        for number in range(_ORDERS)
    ]


def _item(number: int) -> str:
    """Two of three orders are for the most popular item of those minutes."""
    return _ITEMS[(number // 60 if number % 3 else number) % len(_ITEMS)]


async def _send(namesrv: str, orders: list[dict[str, Any]]) -> None:
    async with AsyncProducer("shop", namesrv=namesrv) as producer:
        for begin in range(0, len(orders), _MAX_CONCURRENT_SENDS):
            some = orders[begin : begin + _MAX_CONCURRENT_SENDS]
            messages = [Message(TOPIC, json.dumps(order).encode(), keys=[order["id"]]) for order in some]
            await asyncio.gather(*map(producer.send, messages))


async def _windows(namesrv: str, folder: Path) -> list[list[Any]]:
    """The output of the job; on return the job and its JVM have ended."""
    job = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kourou.cli.demo.spark_job",
        namesrv,
        str(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            printed, errors = await job.communicate()
    except TimeoutError:
        raise KourouError(
            f"Spark: not finished within {_LIMIT_S:.0f} s: this machine is very busy; try again"
        ) from None
    finally:
        if job.returncode is None:
            os.killpg(job.pid, signal.SIGKILL)  # including its JVM and its workers
            await job.wait()
    if job.returncode != 0:
        raise KourouError(f"Spark: {_story(errors.decode(errors='replace'))}")
    rows: list[list[Any]] = json.loads(printed.splitlines()[-1])
    return rows


def _story(errors: str) -> str:
    """The last lines of a job's errors: its exception, after the stack trace."""
    lines = [line for line in errors.splitlines() if line.strip()]
    stack = [number for number, line in enumerate(lines) if line.startswith("  ")]
    return " ".join(lines[stack[-1] + 1 :] if stack else lines[-1:]) or "it ended without output"


def _check(rows: list[list[Any]], orders: list[dict[str, Any]]) -> None:
    found = sum(row[1] for row in rows), sum(Decimal(row[2]) for row in rows)
    wanted = len(orders), sum(Decimal(order["amount"]) for order in orders)
    if found != wanted:
        raise KourouError(
            f"Spark: found {found[0]} orders over {found[1]}; {wanted[0]} over {wanted[1]} were sent"
        )


def _table(rows: list[list[Any]]) -> Table:
    view = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("Since", "Orders", "Amount", "Most sold"):
        view.add_column(column, justify="right" if column in ("Orders", "Amount") else "left", no_wrap=True)
    for since, orders, amount, most_sold in rows:
        view.add_row(since, f"{orders:,}", f"{Decimal(amount):,}", most_sold)
    return view
