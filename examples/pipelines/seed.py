"""Input for the pipelines in this folder: topics with orders, clicks and dead letters.

    python seed.py -n 127.0.0.1:9876

For a test cluster: creates topics, and the folder `data` beside this file.
"""

from __future__ import annotations

import argparse
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kourou import ConsumeResult, Message, MessageExt, Producer, PushConsumer

HERE = Path(__file__).parent
BEGIN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CUSTOMERS = {"c1": ("Ada", "north"), "c2": ("Grace", "north"), "c3": ("Linus", "south")}
# Customer, amount, and seconds after BEGIN.
ORDERS = [
    ("c1", 10.0, 5),
    ("c2", 20.0, 30),
    ("c3", 5.0, 50),
    ("c1", 7.5, 70),
    ("c3", 2.5, 100),
    ("c2", 1.0, 240),
]
# Visitor, page, and seconds after BEGIN.
CLICKS = [
    ("ada", "/", 0), ("ada", "/books", 10), ("bob", "/", 12), ("ada", "/cart", 25), ("bob", "/help", 100),
    ("eve", "/", 400),
]  # fmt: skip


def main(namesrv: str, folder: Path = HERE) -> None:
    """Send everything, and write the customers."""
    write_customers(folder / "data" / "customers")
    with Producer("seed", namesrv=namesrv) as producer:
        send_orders(producer)
        send_clicks(producer)
        let_some_die(namesrv, producer)


def write_customers(folder: Path) -> None:
    """The table that orders are joined with."""
    folder.mkdir(parents=True, exist_ok=True)
    names, regions = zip(*CUSTOMERS.values(), strict=True)
    table = pa.table({"customer": list(CUSTOMERS), "name": list(names), "region": list(regions)})
    pq.write_table(table, folder / "customers.parquet")


def send_orders(producer: Producer) -> None:
    """Some are sent twice, as by a producer after a timeout; one is not an order at all."""
    for number, (customer, amount, seconds) in enumerate(ORDERS):
        order = {"id": f"order-{number}", "customer": customer, "amount": amount, "at": _time(seconds)}
        message = Message("orders", json.dumps(order).encode(), keys=[f"order-{number}"], tags="shop")
        producer.send(message)
        if number % 2:
            producer.send(Message("orders", message.body, keys=[f"order-{number}"], tags="shop"))
    producer.send(Message("orders", b"what is this?", keys=["odd"]))


def send_clicks(producer: Producer) -> None:
    """The clicks of visitors."""
    for visitor, page, seconds in CLICKS:
        click = {"visitor": visitor, "page": page, "at": _time(seconds)}
        producer.send(Message("clicks", json.dumps(click).encode()))


def let_some_die(namesrv: str, producer: Producer) -> None:
    """Messages that a consumer rejects until they are dead letters."""
    for number in range(3):
        producer.send(Message("invoices", b"{}", keys=[f"invoice-{number}"], tags="paper"))
    refused: set[str] = set()
    all_refused = threading.Event()

    def refuse(message: MessageExt) -> ConsumeResult:
        refused.add(message.msg_id)
        if len(refused) >= 3:
            all_refused.set()
        return ConsumeResult.LATER

    with PushConsumer("printing", namesrv=namesrv, consume_from="first", max_reconsume_times=0) as consumer:
        consumer.subscribe("invoices", refuse)
        all_refused.wait(30)


def _time(seconds: int) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--namesrvAddr", dest="namesrv", default="127.0.0.1:9876")
    main(parser.parse_args().namesrv)
