"""`metrics_text`: the counters of clients as Prometheus reads them."""

from __future__ import annotations

import time

import pytest

from kourou import LitePullConsumer, Message, MessageExt, Producer, PushConsumer
from kourou.client import metrics_text
from kourou.testing import LocalCluster
from tests.e2e.metrics_kit import Scrape

pytestmark = pytest.mark.e2e


def test_the_counters_of_several_clients_are_one_text() -> None:
    def handler(message: MessageExt) -> None:
        if message.body == b"bad":
            raise ValueError("cannot be consumed")

    with LocalCluster() as mq, Producer("producers", namesrv=mq.namesrv) as producer:
        for body in (b"bad", b"good", b"good"):
            producer.send(Message("Counted", body))
        with (
            PushConsumer("push", namesrv=mq.namesrv, consume_from="first") as push,
            LitePullConsumer("lite", namesrv=mq.namesrv, consume_from="first") as lite,
        ):
            push.subscribe("Counted", handler)
            lite.subscribe("Counted")
            polled, deadline = 0, time.monotonic() + 20
            while polled < 3 or push.stats().consumed < 2 or not push.stats().failed:
                polled += len(lite.poll(200))
                assert time.monotonic() < deadline
            found = Scrape(metrics_text(producer, push, lite))
            assert found.value("kourou_client_sent_total", group="producers") == 3
            assert 0 < found.value("kourou_client_send_seconds_total", group="producers") < 20
            assert found.value("kourou_client_send_failed_total", client_id=producer.client_id) == 0
            assert found.value("kourou_client_consumed_total", group="push", topic="Counted") == 2
            assert found.value("kourou_client_consume_failed_total", group="push", topic="Counted") >= 1
            assert found.value("kourou_client_polled_total", group="lite") == 3
            assert found.value("kourou_client_queues", group="lite") > 0
