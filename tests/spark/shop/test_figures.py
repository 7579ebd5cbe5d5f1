"""The shop's figures: Spark's agree with figures in plain Python, also after a restart in the middle."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kourou import Producer
from kourou.cli.main import app
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")
need_module("yaml")

from tests.spark.shop.generated_orders import Order, events_of, make_orders  # noqa: E402
from webshop.events import Event, Kind, Topic, message_of  # noqa: E402
from webshop.spark import figures  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINES = Path(__file__).parents[3] / "examples" / "shop" / "pipelines"


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        for topic in Topic:
            cluster.create_topic(topic, queues=4)
        yield cluster


@pytest.fixture
def run(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], dict[str, Any]]:
    """Runs the pipeline over what is stored, and returns the figures of the page."""
    copy = tmp_path / "pipelines"
    shutil.copytree(PIPELINES, copy, ignore=shutil.ignore_patterns("__pycache__", "figures"))
    file = copy / "figures.yaml"
    text = file.read_text()
    assert "trigger: {processingTime: 10 seconds}" in text
    file.write_text(text.replace("trigger: {processingTime: 10 seconds}", "trigger: availableNow"))
    monkeypatch.setenv("NAMESRV_ADDR", mq.namesrv)
    monkeypatch.setenv("SHOP_FIGURES", str(tmp_path / "figures"))
    kept = {name: spark.conf.get(name, None) for name in _settings(text)}

    def run_once() -> dict[str, Any]:
        result = CliRunner().invoke(app, ["pipeline", "run", str(file)])
        assert result.exit_code == 0, result.output
        return figures.read(tmp_path / "figures")

    yield run_once
    for name, value in kept.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def _settings(text: str) -> list[str]:
    """Settings of the session that the pipeline changes."""
    import yaml

    return [name for name in yaml.safe_load(text)["spark"] if name.startswith("spark.sql.")]


def send(mq: LocalCluster, events: Sequence[Event]) -> None:
    with Producer("shop", namesrv=mq.namesrv) as producer:
        for event in events:
            producer.send(message_of(event), sharding_key=event.order_id)


def test_figures_agree_with_plain_python_and_count_nothing_twice(
    run: Callable[[], dict[str, Any]], mq: LocalCluster, tmp_path: Path
) -> None:
    assert figures.read(tmp_path / "figures") == {}
    orders = make_orders(60, seed=24)
    events = events_of(orders)
    half = len(events) // 2
    send(mq, events[:half])
    run()
    # As after a crash between the commits of the tables and Spark's own: the last batches are repeated.
    for commit in (tmp_path / "figures" / "_checkpoint").glob("*/commits/*0*"):
        commit.unlink()
    send(mq, events[half:])
    found = run()
    assert found.pop("as_of") is not None
    assert found == expected_figures(orders)


def expected_figures(orders: list[Order]) -> dict[str, Any]:
    """Computed from orders, without Spark."""
    events = [(at, event, order) for order in orders for at, event in order.events]
    paid = [(at, order) for at, event, order in events if event.kind == Kind.ORDER_PAID]
    cancelled = {order.order_id: at for at, event, order in events if event.kind == Kind.ORDER_CANCELLED}
    sales: dict[datetime, list[int]] = defaultdict(list)
    goods: Counter[str] = Counter()
    money: Counter[str] = Counter()
    for at, order in paid:
        sales[at.replace(second=0, microsecond=0)].append(order.amount_due + order.balance_paid)
        for item in order.items:
            goods[item.goods_id] += item.quantity
            money[item.goods_id] += item.quantity * item.price
    late = sorted(
        (
            (at, order, event)
            for at, event, order in events
            if event.kind == Kind.PAYMENT_PAID and order.life == "late"
        ),
        key=lambda each: each[0],
        reverse=True,
    )
    ranking = sorted(goods, key=lambda each: (-goods[each], -money[each], each))
    kinds = Counter(event.kind for _, event, _ in events)
    return {
        "sales": [
            {"minute": text(minute), "orders": len(amounts), "amount": sum(amounts)}
            for minute, amounts in sorted(sales.items())
        ],
        "funnel": {
            "created": len(orders),
            "confirmed": kinds[Kind.ORDER_CONFIRMED],
            "paid": len(paid),
            "cancelled": len(cancelled),
        },
        "top_goods": [
            {"goods_id": each, "name": None, "quantity": goods[each], "amount": money[each]}
            for each in ranking[:10]
        ],
        "late_payments": [
            {
                "order_id": order.order_id,
                "payment_id": order.payments()[0][0],
                "amount": order.amount_due,
                "cancelled_at": text(cancelled[order.order_id]),
                "paid_at": text(at),
            }
            for at, order, _ in late[:20]
        ],
        "late_total": {"payments": len(late), "amount": sum(order.amount_due for _, order, _ in late)},
        "fraud_hints": expected_hints(orders, cancelled),
    }


def expected_hints(orders: list[Order], cancelled: dict[str, datetime]) -> list[dict[str, Any]]:
    """For each user the ten minutes, from a full minute on, with the most cancelled orders; the last such."""
    by_user: dict[str, list[datetime]] = defaultdict(list)
    for order in orders:
        if order.order_id in cancelled:
            by_user[order.user_id].append(cancelled[order.order_id])
    hints = []
    for user_id, times in by_user.items():
        minutes = {
            at.replace(second=0, microsecond=0) - timedelta(minutes=n) for at in times for n in range(10)
        }
        counts = [
            (sum(begin <= at < begin + timedelta(minutes=10) for at in times), begin) for begin in minutes
        ]
        count, begin = max(counts)
        if count >= 3:
            hints.append((-count, user_id, begin))
    return [
        {"user_id": user, "cancelled": -count, "from": text(begin), "to": text(begin + timedelta(minutes=10))}
        for count, user, begin in sorted(hints)
    ]


def text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_half_written_output_is_not_an_error(tmp_path: Path) -> None:
    log = tmp_path / "sales" / "_kourou" / "log"
    log.mkdir(parents=True)
    empty = figures.read(tmp_path)
    assert empty["sales"] == [] and empty["funnel"] == dict.fromkeys(empty["funnel"], 0)
    (log / f"{0:020d}.json").write_text('{"format": 1')
    assert figures.read(tmp_path)["sales"] == []
