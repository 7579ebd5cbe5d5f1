"""`python -m webshop` as users run it: a screen of addresses, an end that leaves nothing, data that stay."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client.kit.database_servers import open_folder, postgresql
from tests.needed import need, need_module

need_module("fastapi")
need_module("psycopg_pool")
httpx = need_module("httpx")

from webshop.running.postgres import find_programs  # noqa: E402
from webshop.running.shop import Shop, ShopOptions, StartError  # noqa: E402
from webshop.settings import Settings  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.slow]

START_S = 120
STOP_S = 30
WORDS = ("--buyers", "0", "--no-spark")
ORDER = {
    "order_id": "1" * 32,
    "user_id": "ada",
    "items": [{"goods_id": "tea", "quantity": 2, "price": 650}],
    "shipping": 1_000,
    "total": 2_300,
    "coupon_id": None,
    "balance": 0,
}


class Launcher:
    """A process of `python -m webshop`, and the addresses on its screen."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "webshop", "--folder", str(folder), *WORDS, *words],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_open(self) -> dict[str, str]:
        """The screen: what there is, and where."""
        assert self.process.stdout is not None
        rows: dict[str, str] = {}
        for line in self.process.stdout:
            if found := re.fullmatch(r"  (\S+(?: \S+)?) +(\S+) {2,}\S.*\n", line):
                rows[found[1]] = found[2]
            if line.startswith("Ctrl-C ends everything"):
                return rows
        raise AssertionError(self.process.stderr.read() if self.process.stderr else "")

    def services(self) -> list[int]:
        """The process ids of all that it has started."""
        control = Settings.load(self.folder / "settings.json").address("control")
        rows: list[dict[str, Any]] = httpx.get(f"http://{control}/processes").json()["processes"]
        assert len(rows) == 12 and {row["state"] for row in rows} == {"running"}
        return [row["pid"] for row in rows]


@pytest.fixture
def folder() -> Iterator[Path]:
    need("a PostgreSQL server", find_programs())
    with open_folder() as folder:
        yield folder / "shop"


@contextmanager
def launched(folder: Path, *words: str) -> Iterator[Launcher]:
    launcher = Launcher(folder, *words)
    try:
        yield launcher
    finally:
        launcher.process.kill()
        launcher.process.communicate()


def wait_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + STOP_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.05)


def test_it_leaves_no_process_and_goes_on_with_its_data(folder: Path) -> None:
    with launched(folder) as launcher:
        screen = launcher.wait_open()
        assert " ".join(screen) == "shop operator two ways figures console broker settings logs"
        assert httpx.get(screen["shop"]).status_code == 200
        assert httpx.get(screen["console"]).status_code == 200
        assert {path.stem for path in Path(screen["logs"]).iterdir()} >= {"orders", "broker", "postgres"}
        orders = f"http://{Settings.load(folder / 'settings.json').address('orders')}/orders"
        assert httpx.post(orders, json=ORDER, timeout=60).json()["state"] == "CONFIRMED"

        with launched(folder) as second:
            _, errors = second.process.communicate(timeout=START_S)
        assert second.process.returncode == 1
        assert f"{folder} is in use by a shop that runs already (process {launcher.process.pid})" in errors

        pids = launcher.services()
        launcher.process.kill()
    wait_gone(pids)

    with launched(folder) as launcher:
        assert launcher.wait_open() == screen  # the same addresses
        order = httpx.get(f"{orders}/{ORDER['order_id']}", timeout=60).json()
        assert (order["state"], order["amount_due"]) == ("CONFIRMED", 2_300)
        pids = launcher.services()
        launcher.process.send_signal(signal.SIGINT)
        _, errors = launcher.process.communicate(timeout=STOP_S)
        assert launcher.process.returncode == 0
        assert f"the shop has ended; its data are in {folder}" in errors
    wait_gone(pids)

    with launched(folder) as launcher:
        launcher.wait_open()
        pids = launcher.services()
        for stream in (launcher.process.stdout, launcher.process.stderr):  # the terminal is closed
            assert stream is not None
            stream.close()
        launcher.process.send_signal(signal.SIGHUP)
        launcher.process.wait(STOP_S)
    wait_gone(pids)


def test_a_database_that_cannot_be_reached_is_named(folder: Path) -> None:
    with launched(folder, "--database", "postgresql://nobody@127.0.0.1:1/none") as launcher:
        _, errors = launcher.process.communicate(timeout=START_S)
    assert launcher.process.returncode == 1
    assert re.search(r"the shop cannot be started: --database: .*127\.0\.0\.1.*port 1 failed", errors)


def test_a_database_belongs_to_one_folder(folder: Path) -> None:
    with postgresql() as port:
        url = f"postgresql://shop@127.0.0.1:{port}/postgres"
        first = Shop(ShopOptions(folder=folder / "first", database=url))
        second = Shop(ShopOptions(folder=folder / "second", database=url))
        for shop in (first, second):
            shop.folder.mkdir(parents=True)
        asyncio.run(first._check_database(url))
        asyncio.run(first._check_database(url))
        with pytest.raises(StartError, match="the tables of a shop in another folder; use that --folder"):
            asyncio.run(second._check_database(url))
        with pytest.raises(StartError, match="such as postgresql://"):
            asyncio.run(second._check_database("nonsense"))
