"""What the pages behind the counter read and change: the operator's, the comparison, the figures."""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from fastapi import APIRouter

from webshop.checking.invariants import check
from webshop.gateway.buyer import READ_S, or_problem
from webshop.kit.calls import Calls, path_of
from webshop.operator import tables
from webshop.provider.domain import Behaviour
from webshop.settings import Settings
from webshop.spark.figures import read

PIPELINE: Final = Path(__file__).parents[2] / "pipelines" / "figures.yaml"
Answer: TypeAlias = dict[str, Any]
_KEEP_S: Final = 0.8
_KEEP_FACTOR: Final = 10
_CHECK_S: Final = 30.0
"""The invariants are about all orders, of which there may be many."""


def shared(load: Callable[[], Awaitable[Answer]]) -> Callable[[], Awaitable[Answer]]:
    """The result of `load`, one for all open pages. It is kept ten times as long as it took, so that pages
    never become the load of the database."""
    lock = asyncio.Lock()
    kept: tuple[float, Answer] | None = None

    async def get() -> Answer:
        nonlocal kept
        async with lock:
            began = time.monotonic()
            if kept is None or began > kept[0]:
                answer = await load()
                now = time.monotonic()
                kept = now + max(_KEEP_S, _KEEP_FACTOR * (now - began)), answer
            return kept[1]

    return get


def operator_routes(settings: Settings, calls: Calls) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api")

    async def read_states() -> Answer:
        async with tables.reading(settings.database) as connection:
            return {"as_of": _now_ms(), "orders": await tables.orders_by_state(connection)}

    async def read_findings() -> Answer:
        began_ms = _now_ms()
        async with tables.reading(settings.database, within_s=_CHECK_S) as connection:
            findings = await check(connection, pay_within_s=settings.pay_within_s)
        return {
            "as_of": began_ms,
            "took_ms": _now_ms() - began_ms,
            "findings": [asdict(finding) for finding in findings],
        }

    async def read_ways() -> Answer:
        async with tables.reading(settings.database) as connection:
            ways = await tables.compared_ways(connection)
        return {"window_s": tables.WINDOW_S, "ways": ways}

    states, findings, ways = map(shared, (read_states, read_findings, read_ways))

    @routes.get("/operator/states")
    async def orders_by_state() -> Answer:
        """How many orders are in each state."""
        return await states()

    @routes.get("/operator/invariants")
    async def invariants() -> Answer:
        """What is wrong now, and what is under way."""
        return await findings()

    @routes.get("/operator/processes")
    async def processes() -> Any:
        """The processes of the shop and what happened to them, the newest first."""
        read = await calls.get("control", "/processes", within_s=READ_S)
        return read | {"events": read["events"][::-1]}

    @routes.post("/operator/processes/{name}/{action}")
    async def act(name: str, action: str) -> Any:
        """Inject a fault, or end it."""
        return await calls.post("control", path_of("processes", name, action), {})

    @routes.get("/operator/behaviour")
    async def behaviour() -> Answer:
        """How the payment provider behaves, and how it does normally."""
        now = await calls.get("provider", "/behaviour", within_s=READ_S)
        return {"behaviour": now, "normal": asdict(Behaviour())}

    @routes.put("/operator/behaviour")
    async def change_behaviour(body: dict[str, Any]) -> Any:
        """Change how the payment provider behaves."""
        return await calls.put("provider", "/behaviour", body)

    @routes.get("/compare")
    async def compare() -> Answer:
        """The two ways, measured."""
        return await ways()

    @routes.get("/figures")
    async def figures() -> Answer:
        """Spark's output."""
        return await _figures(settings, calls)

    return routes


async def _figures(settings: Settings, calls: Calls) -> Answer:
    folder = settings.figures or "FOLDER"
    pipeline = shlex.join([sys.executable, "-m", "kourou.cli.main", "pipeline", "run", str(PIPELINE)])
    answer: Answer = {
        "command": f"NAMESRV_ADDR={settings.namesrv} SHOP_FIGURES={shlex.quote(folder)} {pipeline}"
    }
    problems: list[str] = []
    control, figures = await asyncio.gather(
        or_problem(calls.get("control", "/processes", within_s=READ_S), None, problems),
        asyncio.to_thread(read, folder),
    )
    answer |= {"spark": _state_of_spark(control), "problems": problems}
    if not figures:
        return answer | {"is_installed": importlib.util.find_spec("pyspark") is not None}
    goods = await or_problem(calls.get("goods", "/goods", within_s=READ_S), [], problems)
    names = {item["goods_id"]: item["name"] for item in goods}
    top = [row | {"name": names.get(row["goods_id"])} for row in figures["top_goods"]]
    return {**answer, **figures, "top_goods": top}


def _state_of_spark(control: Answer | None) -> str:
    """Of the supervisor's process; `none`: the shop was started without it, `unknown`: no answer."""
    if control is None:
        return "unknown"
    states: dict[str, str] = {process["name"]: process["state"] for process in control["processes"]}
    return states.get("spark", "none")


def _now_ms() -> int:
    return int(time.time() * 1000)
