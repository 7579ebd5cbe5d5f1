"""StreamDriver with a cluster that is two tables: what it makes of queues that go, come and change."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

from kourou.client.pull.pull_consumer import AsyncPullConsumer  # noqa: E402
from kourou.errors import KourouError  # noqa: E402
from kourou.protocol.bodies import MessageQueue  # noqa: E402
from kourou.spark.source.data_loss import DataLossError  # noqa: E402
from kourou.spark.source.offsets import Positions, QueueOffsets  # noqa: E402
from kourou.spark.source.options import SourceOptions  # noqa: E402
from kourou.spark.source.planning import QueueRange, ranges_between  # noqa: E402
from kourou.spark.source.queue_lookup import QueueLookup  # noqa: E402
from kourou.spark.source.source_client import Answers, SourceClient  # noqa: E402
from kourou.spark.source.stream_driver import StreamDriver  # noqa: E402

ORDERS = MessageQueue("orders", "broker-a", 0)
ORDERS_B = MessageQueue("orders", "broker-b", 0)
PAYMENTS = MessageQueue("payments", "broker-a", 0)


class TwoTables:
    """Stands for SourceClient: where queues begin and end. Those of `away` do not answer."""

    def __init__(self, ends: QueueOffsets) -> None:
        self.begins: QueueOffsets = {}
        self.ends = ends
        self.away: set[MessageQueue] = set()
        self.away_for_begins: set[MessageQueue] = set()
        self.published: QueueOffsets = {}
        self.slave_ends: set[MessageQueue] = set()

    def topic_names(self) -> list[str]:
        return sorted({queue.topic for queue in self.ends})

    def routes(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        named = {topic: topic.removeprefix("shop%") for topic in topics}
        found = {
            topic: [queue for queue in self.ends if queue.topic == name] for topic, name in named.items()
        }
        return {
            topic: [queue for queue in queues if queue not in self.away] for topic, queues in found.items()
        }

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Answers:
        return {queue: KourouError("away") if queue in self.away else self.ends[queue] for queue in queues}

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Answers:
        away = self.away | self.away_for_begins
        return {
            queue: KourouError("away") if queue in away else self.begins.get(queue, 0) for queue in queues
        }

    def samples(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, Any]:
        return {}

    def publish(self, offsets: Mapping[MessageQueue, int]) -> QueueOffsets:
        self.published |= offsets
        return dict(offsets)


def driver_of(cluster: TwoTables, **options: str) -> StreamDriver:
    given = {"namesrv": "127.0.0.1:1", "pollTimeoutMs": "0", "discoveryIntervalMs": "0", **options}
    client: Any = cluster
    return StreamDriver(client, SourceOptions.parse(given))


def batch(driver: StreamDriver, start: Positions) -> tuple[Positions, list[QueueRange]] | None:
    """The end of the next batch, by way of its JSON, and what it reads; None without one."""
    end = driver.batch_end(start, ReadAllAvailable())
    if end is None:
        return None
    noted = Positions.from_json(json.loads(json.dumps(end.to_json())))
    return noted, ranges_between(start.batch_begin(noted), noted.offsets)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# -- a topic that was made anew --------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"minOffsetsPerTrigger": "1000"}])
def test_a_topic_made_anew_is_read_whole_though_it_was_empty_when_looked_at(
    caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    cluster = TwoTables({ORDERS: 0})
    driver = driver_of(cluster, subscribe="orders", failOnDataLoss="false", **more)
    planned = batch(driver, Positions({ORDERS: 100}))
    assert planned is not None
    start, ranges = planned
    assert start.offsets == {ORDERS: 0} and ranges == []
    assert batch(driver, start) is batch(driver, start) is None
    assert len(warnings(caplog)) == 1 and "at offset 100, but the queue ends at 0" in caplog.text
    cluster.ends[ORDERS] = 5_000
    planned = batch(driver, start)
    assert planned is not None and planned[1] == [QueueRange(ORDERS, 0, 5_000)]


def test_a_run_that_ends_behind_what_is_there_notes_an_empty_topic_made_anew_once() -> None:
    driver = driver_of(TwoTables({ORDERS: 0}), subscribe="orders", failOnDataLoss="false")
    driver.stop_at_now()
    planned = batch(driver, Positions({ORDERS: 100}))
    assert planned is not None and planned[0].offsets == {ORDERS: 0}
    assert batch(driver, planned[0]) is None


def test_a_topic_made_anew_whose_broker_goes_away_in_that_moment_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = TwoTables({ORDERS: 3, ORDERS_B: 7})
    cluster.away_for_begins = {ORDERS}
    driver = driver_of(cluster, subscribe="orders", failOnDataLoss="false")
    planned = batch(driver, Positions({ORDERS: 100, ORDERS_B: 5}))
    assert planned is not None
    start, ranges = planned
    assert start.offsets == {ORDERS: 100, ORDERS_B: 7} and ranges == [QueueRange(ORDERS_B, 5, 7)]
    assert warnings(caplog) == []
    cluster.away_for_begins = set()
    planned = batch(driver, start)
    assert planned is not None and planned[1] == [QueueRange(ORDERS, 0, 3)]
    assert len(warnings(caplog)) == 1


def test_a_broker_that_contradicts_itself_makes_no_batches_of_nothing() -> None:
    cluster = TwoTables({ORDERS: 50})
    cluster.begins = {ORDERS: 100}
    driver = driver_of(cluster, subscribe="orders", failOnDataLoss="false")
    assert batch(driver, Positions({ORDERS: 100})) is None


def test_a_topic_made_anew_fails_the_query_though_its_broker_went_away() -> None:
    cluster = TwoTables({ORDERS: 3})
    cluster.away_for_begins = {ORDERS}
    with pytest.raises(DataLossError, match="at offset 100, but the queue ends at 3"):
        batch(driver_of(cluster, subscribe="orders"), Positions({ORDERS: 100}))


# -- queues that the options no longer select ------------------------------------------------------


def test_a_slave_that_is_behind_loses_nothing() -> None:
    cluster = TwoTables({ORDERS: 50, ORDERS_B: 7})
    cluster.slave_ends = {ORDERS}
    driver = driver_of(cluster, subscribe="orders")
    planned = batch(driver, Positions({ORDERS: 100, ORDERS_B: 5}))
    assert planned is not None
    start, ranges = planned
    assert start.offsets == {ORDERS: 100, ORDERS_B: 7} and ranges == [QueueRange(ORDERS_B, 5, 7)]
    cluster.slave_ends, cluster.ends[ORDERS] = set(), 110
    planned = batch(driver, start)
    assert planned is not None and planned[1] == [QueueRange(ORDERS, 100, 110)]


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders"},
        {"subscribePattern": "ord.*"},
        {"assign": '{"orders": {"broker-a": [0]}}'},
        {"assign": '{"orders": [0]}'},
        {"subscribe": "shop%orders", "namespace": "shop"},
    ],
)
@pytest.mark.parametrize("is_last_run", [False, True])
def test_a_topic_that_is_not_subscribed_any_more_is_not_read_and_keeps_its_position(
    caplog: pytest.LogCaptureFixture, options: dict[str, str], is_last_run: bool
) -> None:
    cluster = TwoTables({ORDERS: 20, PAYMENTS: 30})
    driver = driver_of(cluster, **options, groupId="readers")
    if is_last_run:
        driver.stop_at_now()
    planned = batch(driver, Positions({ORDERS: 10, PAYMENTS: 10}))
    assert planned is not None
    start, ranges = planned
    assert ranges == [QueueRange(ORDERS, 10, 20)]
    assert start.offsets == {ORDERS: 20, PAYMENTS: 10}
    assert batch(driver, start) is None
    assert warnings(caplog) == [
        "1 of 2 queues in the checkpoint are not read, as the options no longer select them: payments"
    ]
    assert cluster.published == {ORDERS: 20}
    report = driver.report()
    assert report is not None and report["offsets"] == {"orders": {"broker-a": {"0": 20}}}
    assert report["lag"]["messages"] == 0
    again = batch(driver_of(cluster, subscribe="orders,payments"), start)
    assert again is not None and again[1] == [QueueRange(PAYMENTS, 10, 30)]


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing"])
@pytest.mark.parametrize("namespace", ["", "shop"])
def test_topics_are_meant_by_the_names_that_a_client_gives_their_queues(topic: str, namespace: str) -> None:
    inside = topic.replace("orders", "shop%orders").replace("billing", "shop%billing")
    for written in (topic, inside):
        options = SourceOptions.parse(
            {"namesrv": "127.0.0.1:1", "subscribe": written, "namespace": namespace}
        )
        client = AsyncPullConsumer("readers", **options.connection.client_options())
        shown = client.shown(MessageQueue(client.wire_topic(written), "broker-a", 0))
        assert QueueLookup(SourceClient(options.connection), options).selects(shown)


def test_a_topic_that_is_not_subscribed_any_more_may_be_gone(caplog: pytest.LogCaptureFixture) -> None:
    cluster = TwoTables({ORDERS: 20, PAYMENTS: 0})
    cluster.away = {PAYMENTS}
    assert batch(driver_of(cluster, subscribe="orders"), Positions({ORDERS: 20, PAYMENTS: 10})) is None
    assert "do not answer" not in caplog.text


def test_topics_of_rocketmqs_own_are_left_out_when_they_are_not_asked_for_any_more() -> None:
    retries = MessageQueue("%RETRY%billing", "broker-a", 0)
    driver = driver_of(TwoTables({retries: 30}), subscribePattern=".*")
    assert batch(driver, Positions({retries: 10})) is None


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders"},
        {"subscribePattern": "ord.*"},
        {"assign": '{"orders": [0]}'},
    ],
)
def test_a_queue_whose_broker_is_away_is_meant_and_read_on(
    caplog: pytest.LogCaptureFixture, options: dict[str, str]
) -> None:
    cluster = TwoTables({ORDERS: 20, ORDERS_B: 30})
    cluster.away = {ORDERS_B}
    driver = driver_of(cluster, **options)
    planned = batch(driver, Positions({ORDERS: 10, ORDERS_B: 10}))
    assert planned is not None and planned[0].offsets == {ORDERS: 20, ORDERS_B: 10}
    assert "no longer select" not in caplog.text
    cluster.away = set()
    planned = batch(driver, planned[0])
    assert planned is not None and planned[1] == [QueueRange(ORDERS_B, 10, 30)]
