"""The shop at work while every part of it dies, again and again: no cent, no piece, no order goes astray."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.client.kit.database_servers import open_folder
from tests.needed import need, need_module

need_module("fastapi")
need_module("psycopg_pool")

from webshop.running.postgres import find_programs  # noqa: E402
from webshop.running.shop import SERVICES, ShopOptions  # noqa: E402
from webshop.running.survival import survive  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.crash]

SEED = int(os.environ.get("KOUROU_SHOP_SEED", "24"))
ORDERS = 2_000
BUYERS = 50


@pytest.fixture
def folder() -> Iterator[Path]:
    need("a PostgreSQL server", find_programs())
    with open_folder() as folder:
        yield folder


async def test_no_order_goes_astray_while_everything_dies(folder: Path) -> None:
    options = ShopOptions(
        folder=folder / "shop",
        orders=ORDERS,
        buyers=BUYERS,
        seed=SEED,
        pay_within_s=20,
        is_durable=False,
        restart_s=0.2,
        is_quiet=True,
    )
    survival = await survive(options, pause_s=2)
    print(f"seed {SEED}: {survival}")
    assert survival.findings == []
    assert survival.failed == {}
    assert survival.missed == [], "no process died at these kill points"
    assert set(survival.orders) == {
        (state, way) for state in ("PAID", "CANCELLED") for way in ("transaction", "outbox")
    }
    ends = Counter[str]()
    for (state, _), count in survival.orders.items():
        ends[state] += count
    buyers = survival.buyers
    # Some plans are two orders; some orders are refused before they are stored, and some after that.
    assert buyers["ordered"] == buyers["settled"] >= ORDERS
    assert buyers["paid"] == ends["PAID"] > ORDERS / 4
    assert buyers["cancelled"] <= ends["CANCELLED"]
    killed = {name for name, count in survival.restarts.items() if count}
    assert killed >= {*SERVICES, "broker", "postgres"} - {"gateway"}
