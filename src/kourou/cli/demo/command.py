"""`kourou demo`: a tour of a cluster's features, over real connections; it ends by itself.

A name server and two brokers, each in its own process, on free ports, with temporary stores. Each step of the
tour (tour.py) is verified: a failed one ends the demo with exit code 1. Then Spark reads a topic (spark.py),
if it is installed.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kourou.admin.session import Admin
from kourou.admin.topics import create_topic_on
from kourou.cli.demo.progress import Flow, FlowRates, Row, flow_progress
from kourou.cli.demo.spark import show_spark
from kourou.cli.demo.spark_job import TOPIC as SPARK_TOPIC
from kourou.cli.demo.tour import BROKER_KEYS, FLOWS, Step, Tour
from kourou.cli.demo.view import DemoView, topics_table
from kourou.cli.printing import wide_console
from kourou.config.properties import format_properties
from kourou.errors import KourouError
from kourou.protocol.bodies import TopicConfig
from kourou.standalone.options import StandaloneOptions, config_file
from kourou.standalone.supervisor import Supervisor

_BROKERS: Final = 2
_SPARK_QUEUES: Final = 2
_LIMIT_S: Final = 85.0
_POLL_INTERVAL_S: Final = 0.25
# A pause for readers on a terminal.
_PAUSE_S: Final = 1.5
_STORE_TIMEOUT_S: Final = 3.0
_DEATH_SEEN_S: Final = 1.0
_BY_HAND: Final = (
    ("a cluster that stays", "standalone --brokers 2"),
    ("some messages", "quickstart producer --count 20"),
    ("topics and their queues", "topic list"),
    ("messages, old and new", "tail TopicTest"),
    ("a consumer", "quickstart consumer"),
    ("the progress of its group", "group list"),
    ("SQL over topics", 'pipeline sql -n 127.0.0.1:9876 "SELECT count(*) FROM TopicTest"'),
    ("is the cluster healthy?", "admin doctor -n 127.0.0.1:9876"),
    ("every other command", "admin help"),
)


def run_demo(*, spark: bool = True) -> None:
    """Show the tour, and Spark if requested. KourouError names the step that failed."""
    # Retries are part of the tour: without a handler Python would print the client's warnings.
    logging.getLogger("kourou").addHandler(logging.NullHandler())
    console = wide_console()
    with tempfile.TemporaryDirectory(prefix="kourou-demo-") as folder:
        asyncio.run(_cluster_at_work(console, Path(folder), spark=spark))


async def _cluster_at_work(console: Console, folder: Path, *, spark: bool) -> None:
    began = time.monotonic()
    options = StandaloneOptions(store=folder, namesrv_port=0, broker_port=0, brokers=_BROKERS)
    for replica in options.replicas:
        config_file(options, replica).write_text(format_properties(BROKER_KEYS))
    server = Supervisor(options)
    await server.start()
    try:
        started_s = time.monotonic() - began
        brokers = " and ".join(f"[bold]{address}[/]" for address in server.broker_addresses)
        console.print(f"Name server [bold]{server.address}[/] and brokers {brokers}", end="")
        console.print(f" started in {started_s:.1f} s.", soft_wrap=True)
        stored = await _with_watch(server, _shows(console, server.address, folder, spark=spark))
    finally:
        await server.stop()
    _sum_up(console, stored, time.monotonic() - began)


async def _shows(console: Console, namesrv: str, folder: Path, *, spark: bool) -> int:
    """Run the whole demo; returns the number of messages."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            rows = await _tour(console, namesrv)
    except TimeoutError:
        raise KourouError(
            f"not finished within {_LIMIT_S:.0f} s: this machine is very busy; try again"
        ) from None
    if not console.is_terminal:  # where it was just shown
        console.print(topics_table(rows, _BROKERS))
    if spark:
        await show_spark(console, namesrv, folder)
    return sum(row.progress.stored for row in rows)


async def _with_watch(server: Supervisor, shows: Coroutine[Any, Any, int]) -> int:
    """Run a part of the demo; ends at once if a server does."""
    tour = asyncio.create_task(shows, name="tour")
    watch = asyncio.create_task(server.wait_failed(), name="watch-servers")
    try:
        await asyncio.wait({tour, watch}, return_when=asyncio.FIRST_COMPLETED)
        if tour.done() and tour.exception() is not None:
            # A step may fail first because a server has died: report the server then.
            await asyncio.wait({watch}, timeout=_DEATH_SEEN_S)
        if watch.done():
            watch.result()
        return tour.result()
    finally:
        tour.cancel()
        watch.cancel()
        await asyncio.gather(tour, watch, return_exceptions=True)


async def _tour(console: Console, namesrv: str) -> list[Row]:
    try:
        async with asyncio.TaskGroup() as tasks:
            return await _steps(console, namesrv, tasks)
    except* KourouError as group:
        # One of them, for one clear line; the others failed for the same reason.
        raise _first(group) from None


def _first(group: BaseExceptionGroup[KourouError]) -> KourouError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _steps(console: Console, namesrv: str, tasks: asyncio.TaskGroup) -> list[Row]:
    async with Admin(namesrv=namesrv) as admin, AsyncExitStack() as clients:
        await _make_topics(admin)
        look = _Look(admin)
        with DemoView(console, _BROKERS) as view:
            tour = Tour(namesrv, admin, clients, view.say)
            view.titles = [step.title for step in tour.steps]
            background = [
                tasks.create_task(tour.click(), name="click"),
                tasks.create_task(_refresh(view, look), name="refresh"),
            ]
            try:
                for step in tour.steps:
                    await _one_step(step, view, look)
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
        return await look.rows()


async def _one_step(step: Step, view: DemoView, look: _Look) -> None:
    try:
        view.done(step.title, await step.run())
    except KourouError as error:
        raise KourouError(f"{step.title}: {error}") from error
    if view.is_live:
        await asyncio.sleep(_PAUSE_S)
    else:
        view.show_line(await look.row(step.flow))


class _Look:
    """Reads the progress of all flows from the brokers."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._rates = [FlowRates(flow) for flow in FLOWS]

    async def rows(self) -> list[Row]:
        """The current state of all flows."""
        found = await asyncio.gather(*(flow_progress(self._admin, flow) for flow in FLOWS))
        now = time.monotonic()
        return [rate.add(now, progress) for rate, progress in zip(self._rates, found, strict=True)]

    async def row(self, flow: Flow) -> Row:
        """The state of one flow, once its group has committed its offsets, which consumers do
        periodically."""
        deadline = time.monotonic() + _STORE_TIMEOUT_S
        while True:
            progress = await flow_progress(self._admin, flow)
            if not progress.lag or time.monotonic() > deadline:
                return Row(flow, progress, 0.0, 0.0)
            await asyncio.sleep(_POLL_INTERVAL_S)


async def _refresh(view: DemoView, look: _Look) -> None:
    while True:
        view.show(await look.rows())
        await asyncio.sleep(_POLL_INTERVAL_S)


async def _make_topics(admin: Admin) -> None:
    """Create all topics on all brokers; on return the name server knows them."""
    addresses = [broker.address for broker in await admin.masters()]
    for topic, queues in [*((flow.topic, flow.queues) for flow in FLOWS), (SPARK_TOPIC, _SPARK_QUEUES)]:
        config = TopicConfig(topic, queues, queues)
        failed = [outcome for outcome in await create_topic_on(admin, addresses, config) if outcome.problem]
        if failed:
            raise KourouError(f"cannot create topic {topic}: {failed[0].problem}")
        await _until_registered(admin, topic, len(addresses))


async def _until_registered(admin: Admin, topic: str, brokers: int) -> None:
    """Wait until the name server knows the topics: brokers register them after their response."""
    while True:
        route = await admin.api.topic_route(topic)
        if route is not None and len(route.queue_datas) == brokers:
            return
        await asyncio.sleep(0.01)


def _sum_up(console: Console, stored: int, seconds: float) -> None:
    console.print(f"{stored:,} messages; every step succeeded, in {seconds:.0f} seconds.")
    console.print("Next, by hand:")
    for what, words in _BY_HAND:
        console.print(f"  {what:<28} [bold]{kourou_command()} {words}[/]", soft_wrap=True)
    console.print("  a first program              [bold]docs/quickstart.md[/]")


def kourou_command() -> str:
    """How to call `kourou`: with its folder if it is not on the PATH."""
    beside = Path(sys.executable).with_name("kourou")
    if shutil.which("kourou") or not beside.exists():
        return "kourou"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
