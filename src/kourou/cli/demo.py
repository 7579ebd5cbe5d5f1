"""`kourou demo`: a cluster of one broker at work, over real connections, for some seconds.

Standalone on free ports with a store that is thrown away; three topics that are written and read;
a table of rates and lag that the broker is asked for as `mqadmin` asks. Not a terminal: lines.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from kourou.cli.demo_clients import DemoClient, Flow
from kourou.cli.demo_view import FlowRates, Row, line, table
from kourou.errors import KourouError
from kourou.standalone.one_process import Standalone
from kourou.standalone.options import StandaloneOptions

SECONDS: Final = 5.0
FLOWS: Final = (
    Flow("orders", queues=4, messages_per_s=1_000, group="billing"),
    Flow("payments", queues=2, messages_per_s=400, group="ledger"),
    # Slower than what comes in, so that there is something to see.
    Flow("audit", queues=1, messages_per_s=200, group="archive", pause_s=0.008),
)
_LOOK_EVERY_S: Final = 0.25
_LINE_EVERY_S: Final = 1.0
_FIRST_MESSAGE_S: Final = 10.0


def run_demo(seconds: float = SECONDS) -> None:
    """Show a broker at work for that long."""
    with tempfile.TemporaryDirectory(prefix="kourou-demo-") as folder:
        asyncio.run(_demo(Console(highlight=False), Path(folder), seconds))


async def _demo(console: Console, folder: Path, seconds: float) -> None:
    started = time.monotonic()
    async with Standalone(StandaloneOptions(store=folder, namesrv_port=0, broker_port=0)) as server:
        booted_ms = (time.monotonic() - started) * 1000
        (broker,) = server.broker_addresses
        console.print(f"Name server [bold]{server.address}[/] and broker [bold]{broker}[/] ", end="")
        console.print(f"started in {booted_ms:.0f} ms.")
        client = DemoClient(server.address)
        try:
            rows = await _at_work(console, client, broker, seconds)
        finally:
            await client.stop()
    _sum_up(console, rows, seconds)


async def _at_work(console: Console, client: DemoClient, broker: str, seconds: float) -> list[Row]:
    """Send and consume while the numbers are shown; returns the last ones."""
    try:
        async with asyncio.TaskGroup() as tasks:
            clients = [tasks.create_task(client.produce(flow), name=flow.topic) for flow in FLOWS]
            await _wait_topics(client, broker)
            clients += [
                tasks.create_task(client.consume(flow, queue_id), name=f"{flow.group}-{queue_id}")
                for flow in FLOWS
                for queue_id in range(flow.queues)
            ]
            rows = await _show(console, client, broker, seconds)
            for task in clients:
                task.cancel()
            return rows
    except* KourouError as group:
        # One of them, for one clear line; the others failed of the same.
        raise _first(group) from None


def _first(group: BaseExceptionGroup[KourouError]) -> KourouError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _wait_topics(client: DemoClient, broker: str) -> None:
    """The first message to a topic makes it."""
    deadline = time.monotonic() + _FIRST_MESSAGE_S
    for flow in FLOWS:
        while not await client.knows(broker, flow):
            if time.monotonic() > deadline:
                raise KourouError(f"topic {flow.topic} is not there after {_FIRST_MESSAGE_S:.0f} seconds")
            await asyncio.sleep(0.01)


async def _show(console: Console, client: DemoClient, broker: str, seconds: float) -> list[Row]:
    rates = [FlowRates(flow) for flow in FLOWS]

    async def look() -> list[Row]:
        progress = [await client.progress(broker, flow) for flow in FLOWS]
        now = time.monotonic()
        return [rate.add(now, one) for rate, one in zip(rates, progress, strict=True)]

    if not console.is_terminal:
        return await _repeat(look, seconds, _LINE_EVERY_S, lambda rows, age: _print_lines(console, rows, age))
    with Live(console=console, auto_refresh=False) as live:

        def update(rows: list[Row], age: float) -> None:
            live.update(table(rows, f"{age:.0f} of {seconds:.0f} s"), refresh=True)

        return await _repeat(look, seconds, _LOOK_EVERY_S, update)


async def _repeat(
    look: Callable[[], Awaitable[list[Row]]],
    seconds: float,
    every_s: float,
    show: Callable[[list[Row], float], None],
) -> list[Row]:
    started = time.monotonic()
    await look()  # rates need something to compare with
    while True:
        await asyncio.sleep(every_s)
        rows, age = await look(), time.monotonic() - started
        show(rows, age)
        if age >= seconds:
            return rows


def _print_lines(console: Console, rows: list[Row], age: float) -> None:
    for row in rows:
        console.print(line(row, age), soft_wrap=True)


def _sum_up(console: Console, rows: list[Row], seconds: float) -> None:
    stored = sum(row.progress.stored for row in rows)
    consumed = sum(row.progress.consumed for row in rows)
    behind = max(rows, key=lambda row: row.progress.lag)
    console.print(f"{stored:,} messages stored and {consumed:,} consumed in {seconds:.0f} seconds; ", end="")
    console.print(f"group {behind.flow.group} is slow on purpose and {behind.progress.lag:,} behind.")
    console.print("Next: [bold]kourou standalone[/] starts one that stays; point any RocketMQ client")
    console.print("at it: [bold]namesrvAddr=127.0.0.1:9876[/].")
