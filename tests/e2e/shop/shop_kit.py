"""A database, a broker and settings for tests of parts of the shop; services run in the test's own loop.

The whole shop with its processes: webshop.running.shop.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg

from kourou.testing import LocalCluster
from tests.e2e.client.kit.database_servers import free_port
from webshop.events import Event, Topic, decode
from webshop.kit.kill_points import KillPoint, arm, is_hit
from webshop.kit.service import Service
from webshop.settings import Settings

_numbers = itertools.count(1)
_EXAMPLE = Path(__file__).parents[3] / "examples" / "shop"
WAIT_S = 30
# Half messages of dead processes are decided within a second.
BROKER = {"transaction_time_out": 300, "transaction_check_interval": 200, "timer_precision_ms": 100}


def new_database(port: int) -> str:
    """The URL of an empty database."""
    name = f"shop_{next(_numbers)}"
    with psycopg.connect(f"postgresql://shop@127.0.0.1:{port}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"postgresql://shop@127.0.0.1:{port}/{name}"


def new_cluster() -> LocalCluster:
    """A broker with the topics of the shop; not started."""
    return LocalCluster(**BROKER)


def settings_of(cluster: LocalCluster, database: str, *services: str, **more: Any) -> Settings:
    addresses = {name: f"127.0.0.1:{free_port()}" for name in services}
    return Settings(
        namesrv=cluster.namesrv,
        database=database,
        services=addresses,
        provider_secret="secret",
        folder="/nonexistent",
        **more,
    )


def create_topics(cluster: LocalCluster) -> None:
    for topic in Topic:
        cluster.create_topic(topic)


async def events_in(cluster: LocalCluster, topic: Topic = Topic.ORDERS) -> list[Event]:
    """All events of a topic: queue by queue, so those of an order are in their order."""
    messages = await cluster.aio.messages(topic)
    messages.sort(key=lambda message: (message.queue_id, message.queue_offset))
    return [decode(message.body) for message in messages]


async def until(is_true: Callable[[], Awaitable[object]]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(WAIT_S):
        while not await is_true():  # noqa: ASYNC110  what happens in other processes
            await asyncio.sleep(0.02)


def armed(settings: Settings, folder: Path, name: str, point: KillPoint) -> Path:
    """The file of settings of a process that dies at this point."""
    points = folder / name
    points.mkdir()
    arm(points, point)
    path = folder / f"{name}.json"
    replace(settings, kill_points=str(points)).save(path)
    return path


async def run_until_dead(what: str, deaths: dict[Path, KillPoint]) -> None:
    """Run processes of dying_programs.py with these files of settings, until each has died at its point."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("dying_programs.py")), what, *map(str, deaths)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_EXAMPLE), os.environ.get("PYTHONPATH", "")])},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            ends, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
    assert ends.split() == [b"%d" % -signal.SIGKILL] * len(deaths)
    for path, point in deaths.items():
        assert is_hit(path.with_suffix(""), point)


@asynccontextmanager
async def running(settings: Settings, *services: Service) -> AsyncIterator[httpx.AsyncClient]:
    """Services until the end of the block, and a client for them."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_S))

        async def is_ready(service: Service) -> bool:
            try:
                response = await client.get(f"http://{settings.address(service.name)}/health")
            except httpx.TransportError:
                return False
            return response.is_success

        for service in services:
            await stack.enter_async_context(service.running(settings))
        for service in services:
            await until(lambda service=service: is_ready(service))
        yield client
