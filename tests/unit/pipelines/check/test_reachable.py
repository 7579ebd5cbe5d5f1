"""A missing topic is reported with the nearest name; with a fake client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kourou.errors import NoRouteError
from kourou.protocol.bodies import MessageQueue
from tests.needed import need_module

need_module("pyarrow")

from kourou.spark.pipelines.archive import archive  # noqa: E402
from kourou.spark.pipelines.check.reachable import find_queues  # noqa: E402
from kourou.spark.pipelines.sql import stats  # noqa: E402
from kourou.spark.pipelines.sql.stats import StatsRequest  # noqa: E402
from kourou.spark.source.options import SourceOptions  # noqa: E402

TOPICS = ("orders", "payments", "%RETRY%orders", "%DLQ%billing")


class Client:
    """Knows some topics, with a queue each."""

    def __init__(self, *_connection: Any) -> None:
        self.asked = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def routes(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        return {topic: [MessageQueue(topic, "broker-a", 0)] for topic in topics if topic in TOPICS}

    def topic_names(self) -> list[str]:
        return list(TOPICS)


def options(topic: str) -> dict[str, str]:
    return {"namesrv": "n:1", "subscribe": topic}


def problem(topic: str) -> str:
    with pytest.raises(NoRouteError) as error:
        find_queues(Client(), SourceOptions.parse(options(topic), {}))  # type: ignore[arg-type]
    return str(error.value)


def test_the_nearest_topic_is_offered() -> None:
    unknown, create = "the name server does not know it", "create it with `kourou topic create`"
    assert problem("ordrs") == f"no route to topic 'ordrs': {unknown} (did you mean orders?); {create}"
    assert problem("unlike-any").endswith(f": {unknown}; {create}; there are orders, payments")
    assert problem("%DLQ%biling").endswith(f": {unknown} (did you mean %DLQ%billing?); {create}")


def test_topics_that_are_there_have_their_queues() -> None:
    found = find_queues(Client(), SourceOptions.parse(options("orders"), {}))  # type: ignore[arg-type]
    assert found == [MessageQueue("orders", "broker-a", 0)]


def test_archive_and_stats_offer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.spark.source.source_client.shared_client", Client)
    monkeypatch.setattr("kourou.spark.source.source_client.SourceClient", Client)
    with pytest.raises(NoRouteError, match=r"did you mean orders\?"):
        archive.check_source(options("ordrs"), {})
    with pytest.raises(NoRouteError, match=r"did you mean orders\?"):
        stats._check_topics(StatsRequest(source={"namesrv": "n:1"}, topics=("ordrs",)))
