"""What happened to an order: the commands of examples/shop/pipelines/README.md, over topics and archive."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kourou import Producer
from kourou.cli.main import app
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")

from tests.spark.shop.generated_orders import events_of, make_orders  # noqa: E402
from webshop.events import Kind, PaymentDue, Topic, message_of  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINES = Path(__file__).parents[3] / "examples" / "shop" / "pipelines"
ADDRESS, ORDER_ID = "127.0.0.1:9876", "0123456789abcdef0123456789abcdef"


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (PIPELINES / "README.md").read_text(), re.S | re.M)
    return [line for block in blocks for line in block.splitlines() if line.startswith("kourou pipeline")]


def test_an_order_has_its_whole_life_half_of_it_archived(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order_life.sql").write_text((PIPELINES / "order_life.sql").read_text())
    orders = make_orders(8, seed=3)
    late = next(order for order in orders if order.life == "late")
    due = PaymentDue(
        kind=Kind.PAYMENT_DUE, order_id=late.order_id, way=late.way, at="2026-01-31T12:00:00.000Z"
    )
    events = [*events_of(orders), due]
    _, archive, life = commands()

    def run(line: str) -> str:
        words = shlex.split(line.replace(ADDRESS, cluster.namesrv).replace(ORDER_ID, late.order_id))[1:]
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.output
        return result.stdout

    with LocalCluster() as cluster:
        for topic in Topic:
            cluster.create_topic(topic, queues=2)
        with Producer("shop", namesrv=cluster.namesrv) as producer:
            for number, event in enumerate(events):
                producer.send(message_of(event), sharding_key=event.order_id)
                if number == len(events) // 2:
                    run(archive)
        rows = [json.loads(line) for line in run(life).splitlines()]
    mine = sorted(
        (event.at, event.kind, event.kind.topic, getattr(event, "reason", None))
        for event in events
        if event.order_id == late.order_id
    )
    assert [(row["at"], row["kind"], row["topic"], row["reason"]) for row in rows] == mine
    kinds = [kind for _, kind, _, _ in mine]
    assert kinds[-3:] == [Kind.PAYMENT_PAID, Kind.REFUND_DUE, Kind.PAYMENT_REFUNDED]
    assert {row["amount"] for row in rows if row["kind"] != Kind.PAYMENT_DUE} == {str(late.amount_due)}
