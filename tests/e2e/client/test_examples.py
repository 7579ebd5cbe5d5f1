"""The examples run: with their framework where it is installed, and without it the same code."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kourou import Message, MessageExt, Producer
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.pull_kit import ClusterThread, cluster_thread
from tests.e2e.client.kit.push_kit import make_topic, until
from tests.needed import need_module

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[3] / "examples"
DJANGO = EXAMPLES / "django_consumer"
TOPICS = ("WebOrders", "SiteOrders")


def load(path: Path) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fastapi_lifespan() -> Iterator[ModuleType]:
    yield load(EXAMPLES / "fastapi_lifespan.py")
    del sys.modules["fastapi_lifespan"]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path / "stores") as running:
        for topic in TOPICS:
            running.run(partial(make_topic, topic=topic))
        monkeypatch.setenv("NAMESRV_ADDR", running.run(_namesrv_addr))
        yield running


async def _namesrv_addr(running: Any) -> str:
    return str(running.namesrv_addr)


# -- FastAPI -------------------------------------------------------------------------------------


async def test_the_lifespan_starts_and_stops_both_clients(
    fastapi_lifespan: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = SimpleNamespace(state=SimpleNamespace())
    async with cluster(tmp_path) as running:
        await make_topic(running, "WebOrders")
        monkeypatch.setenv("NAMESRV_ADDR", running.namesrv_addr)
        async with fastapi_lifespan.lifespan(app):
            shop = app.state.shop
            await until_billed(shop)
            assert len(await shop.place("order-1")) == 32
            await until(lambda: "order-1" in shop.billed)
            assert not shop.watch.done()
        assert shop.watch.done() and shop.watch.exception() is None


async def until_billed(shop: Any) -> None:
    """Wait until orders reach the consumer: a new group begins at the end of the topic."""
    async with asyncio.timeout(20):
        while not shop.billed:
            await shop.place("first")
            await asyncio.sleep(0.05)


# FastAPI's own test client would rather have a successor of httpx.
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:Using `httpx` with")
def test_the_fastapi_application(fastapi_lifespan: ModuleType, served: ClusterThread) -> None:
    need_module("fastapi")
    need_module("httpx")
    from fastapi.testclient import TestClient

    with TestClient(fastapi_lifespan.create_app()) as client:
        for number in range(400):
            placed = client.post(f"/orders/order-{number}")
            assert placed.status_code == 200 and len(placed.json()["msg_id"]) == 32
            if client.get("/health").json()["billed"]:
                return
    pytest.fail("no order was billed")


# -- Django --------------------------------------------------------------------------------------

WITHOUT_DJANGO = """
import sys
from shop.consuming import consume, with_fresh_connections

def bill(message):
    print(message.keys[0], "billed")

handler = with_fresh_connections(bill, lambda: print("looked at connections"))
consume(sys.argv[1], "SiteOrders", handler, concurrency=1)
print("stopped in order")
"""


def start(arguments: list[str], namesrv: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", *arguments],
        cwd=DJANGO,
        env={**os.environ, "NAMESRV_ADDR": namesrv, "SHOP_DATABASE": str(folder / "shop.db"),
             "DJANGO_SETTINGS_MODULE": "settings", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def lines_until_stopped(process: subprocess.Popen[str], count: int) -> list[str]:
    """The first lines it prints, then what it prints when SIGTERM has it stop."""
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    assert process.stdout is not None
    lines = [process.stdout.readline().rstrip("\n") for _ in range(count)]
    # It consumes from `subscribe` on, but handles signals within `run`, which comes next.
    while process.poll() is None and not handles(process.pid, signal.SIGTERM):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate()
    watchdog.cancel()
    assert (process.returncode, errors) == (0, ""), lines
    return lines + rest.splitlines()


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> number - 1 & 1)


def send_orders(namesrv: str, *order_ids: str) -> None:
    with Producer("shop", namesrv=namesrv) as producer:
        for order_id in order_ids:
            producer.send(Message("SiteOrders", b"a book", keys=[order_id]), sharding_key="one queue")


def test_a_command_consumes_until_it_is_stopped(served: ClusterThread, tmp_path: Path) -> None:
    namesrv = os.environ["NAMESRV_ADDR"]
    send_orders(namesrv, "order-1")
    process = start(["-c", WITHOUT_DJANGO, namesrv], namesrv, tmp_path)
    looked = "looked at connections"
    assert lines_until_stopped(process, 3) == [looked, "order-1 billed", looked, "stopped in order"]


def test_a_handler_that_fails_leaves_no_old_connection() -> None:
    looks: list[int] = []

    def fail(message: MessageExt) -> None:
        raise LookupError("no such customer")

    handle = load(DJANGO / "shop" / "consuming.py").with_fresh_connections(fail, lambda: looks.append(1))
    with pytest.raises(LookupError):
        handle(None)
    assert len(looks) == 2


@pytest.mark.integration
def test_the_django_command(served: ClusterThread, tmp_path: Path) -> None:
    need_module("django")
    namesrv = os.environ["NAMESRV_ADDR"]
    migrated = start(["manage.py", "migrate"], namesrv, tmp_path)
    assert (migrated.communicate(timeout=60)[1], migrated.returncode) == ("", 0)
    send_orders(namesrv, "order-1", "order-1")
    process = start(["manage.py", "consume_orders", "--concurrency", "1"], namesrv, tmp_path)
    assert lines_until_stopped(process, 2) == ["order-1 billed", "order-1 was billed before"]
