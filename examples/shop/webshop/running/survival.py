"""Survival: a shop at work while its processes die; afterwards everything has to be right.

simulated buyers place orders ── processes are killed and stopped ── the buyers are done, and so are the
faults ── the shop comes to rest ── every order is paid, or cancelled with everything undone
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from kourou import AsyncPullConsumer
from webshop.checking.invariants import Finding, check
from webshop.kit.kill_points import KillPoint
from webshop.running.faults import Faults
from webshop.running.shop import Shop, ShopOptions
from webshop.running.supervisor import State, Supervised

_CHECK_S: Final = 3.0
_CHECK_SHARE: Final = 10.0
_RETRY_S: Final = 2.0
"""A failed message is in the topic of retries after a second."""
_LOOK_S: Final = 0.25
_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError, OSError)


@dataclass(frozen=True)
class Survival:
    """What a run found."""

    findings: list[Finding]
    """What is wrong; empty: nothing."""
    orders: dict[tuple[str, str], int]
    """How many orders have this state and this way."""
    kills: dict[str, int]
    freezes: dict[str, int]
    restarts: dict[str, int]
    missed: list[KillPoint]
    """Points where no process died."""
    buyers: dict[str, int]
    """What the buyers counted; empty if they had no end."""
    failed: dict[str, int]
    """Messages that a handler failed to handle, by the topics where they wait for a retry or are given up.
    Handlers wait for what is away: any failure is a mistake in a service."""
    busy_s: float
    """Until the buyers were done."""
    rest_s: float
    """From then until nothing was on its way any more."""

    def __str__(self) -> str:
        """A summary of a few lines."""
        orders = ", ".join(f"{count} {state} ({way})" for (state, way), count in sorted(self.orders.items()))
        deaths = ", ".join(f"{name} {count}" for name, count in self.restarts.items() if count)
        return (
            f"{sum(self.orders.values())} orders in {self.busy_s:.0f} s, at rest after {self.rest_s:.1f} s: "
            f"{orders}\n{sum(self.restarts.values())} deaths: {deaths}\n"
            f"{sum(self.kills.values())} of them at random, "
            f"{len(KillPoint) - len(self.missed)} at kill points; "
            f"{sum(self.freezes.values())} processes stopped for a while"
        )


class BuyersError(Exception):
    """The buyers did not come to their end."""


async def survive(
    options: ShopOptions, *, pause_s: float, minutes: float | None = None, rest_within_s: float = 60
) -> Survival:
    """Run a shop with faults until its buyers are done, or for some minutes if their orders have no end."""
    options = dataclasses.replace(options, has_kill_points=True, has_spark=False)
    async with Shop(options) as shop:
        assert shop.settings.kill_points is not None
        points = Path(shop.settings.kill_points)
        faults = Faults(shop.supervisor, points, seed=options.seed, pause_s=pause_s)
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            doing = tasks.create_task(faults.run(), name="faults")
            wrong = await _watch(shop, None if minutes is None else began + minutes * 60)
            doing.cancel()
        done = time.monotonic()
        findings = wrong or await _rest(shop, rest_within_s)
        return Survival(
            findings,
            await _orders(shop),
            dict(faults.kills),
            dict(faults.freezes),
            {name: process.restarts for name, process in shop.supervisor.processes.items()},
            faults.missed,
            _counts(shop.supervisor.find("buyers")),
            await _failed(shop),
            done - began,
            time.monotonic() - done,
        )


async def _watch(shop: Shop, deadline: float | None) -> list[Finding]:
    """Wait for the buyers, or the deadline; whatever is wrong before ends it."""
    buyers = shop.supervisor.find("buyers")
    while True:
        began = time.monotonic()
        with suppress(*_AWAY):  # one of the faults
            if wrong := [finding for finding in await _findings(shop) if not finding.is_pending]:
                return wrong
        # The check reads all orders: it must not become the load of a long run.
        pause_s = max(_CHECK_S, _CHECK_SHARE * (time.monotonic() - began))
        for _ in range(round(pause_s / _LOOK_S)):
            if buyers.state is State.FINISHED:
                if buyers.last_exit != "exit code 0":
                    raise BuyersError(f"the buyers ended with {buyers.last_exit}; see {buyers.log}")
                return []
            if deadline is not None and time.monotonic() > deadline:
                await buyers.end()
                return []
            await asyncio.sleep(_LOOK_S)


async def _findings(shop: Shop, *, is_final: bool = False) -> list[Finding]:
    """One of _AWAY while the database is away."""
    async with await psycopg.AsyncConnection.connect(shop.settings.database, autocommit=True) as connection:
        return await check(connection, is_final=is_final)


async def _rest(shop: Shop, within_s: float) -> list[Finding]:
    """Wait until nothing is on its way; what is wrong then."""
    for process in shop.supervisor.processes.values():
        if process.state not in (State.FINISHED, State.DOWN):
            await process.wait_ready()
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(*_AWAY):
            if not any(finding.is_pending for finding in await _findings(shop)):
                break
        await asyncio.sleep(_LOOK_S)
    return await _findings(shop, is_final=True)


def _counts(buyers: Supervised) -> dict[str, int]:
    """The numbers of the line that the buyers print when they are done."""
    if buyers.state is not State.FINISHED:
        return {}
    last = json.loads(buyers.log.read_text().splitlines()[-1])
    return {name: count for name, count in last.items() if isinstance(count, int)}


async def _failed(shop: Shop) -> dict[str, int]:
    await asyncio.sleep(_RETRY_S)
    listed = json.loads(await shop.run_kourou("topic", "list", "--all", "--json"))
    failed: dict[str, int] = {}
    async with AsyncPullConsumer("shop-survival", namesrv=shop.settings.namesrv) as consumer:
        for topic in (each["topic"] for each in listed):
            if topic.startswith(("%RETRY%shop-", "%DLQ%shop-")):
                queues = await consumer.fetch_queues(topic)
                count = sum([await consumer.max_offset(queue) for queue in queues])
                failed[topic] = count or int(topic.startswith("%DLQ%"))  # that one may not be readable
    return {topic: count for topic, count in failed.items() if count}


async def _orders(shop: Shop) -> dict[tuple[str, str], int]:
    async with await psycopg.AsyncConnection.connect(shop.settings.database) as connection:
        rows = await connection.execute("SELECT state, way, count(*) FROM orders.orders GROUP BY 1, 2")
        return {(state, way): count async for state, way, count in rows}
