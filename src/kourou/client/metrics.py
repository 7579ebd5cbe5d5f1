"""The counters of clients as the text that Prometheus scrapes, for an application to serve with its own.

Names are our own; Apache's Java client has none in this form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kourou.client.producer.producer_stats import ProducerStats
from kourou.client.pull.lite_pull_consumer import LitePullStats
from kourou.client.push.consumer_stats import ConsumerStats, TopicStats
from kourou.metrics.exposition import exposition
from kourou.metrics.families import Family, Kind, Labels, Metric

_TOPIC: Final = ("topic",)

SENT: Final = Metric("kourou_client_sent_total", Kind.COUNTER, "Messages that were acknowledged.")
SENT_BYTES: Final = Metric("kourou_client_sent_bytes_total", Kind.COUNTER, "The bytes of their bodies.")
SEND_SECONDS: Final = Metric(
    "kourou_client_send_seconds_total",
    Kind.COUNTER,
    "Time of acknowledged sends, retries included, added up.",
)
FAILED: Final = Metric("kourou_client_send_failed_total", Kind.COUNTER, "Messages whose send failed.")
RETRIED: Final = Metric("kourou_client_send_retried_total", Kind.COUNTER, "Attempts after the first.")
ONEWAY: Final = Metric("kourou_client_oneway_total", Kind.COUNTER, "Messages sent without a response.")
IN_FLIGHT: Final = Metric("kourou_client_in_flight_messages", Kind.GAUGE, "Sends without a response yet.")
TRANSACTIONS: Final = Metric(
    "kourou_client_transactions_total", Kind.COUNTER, "Transactions by outcome.", ("outcome",)
)
PULLED: Final = Metric("kourou_client_pulled_total", Kind.COUNTER, "Messages that were pulled.", _TOPIC)
PULL_SECONDS: Final = Metric(
    "kourou_client_pull_seconds_total", Kind.COUNTER, "Time of pulls, waiting included, added up.", _TOPIC
)
CONSUMED: Final = Metric("kourou_client_consumed_total", Kind.COUNTER, "Messages that were consumed.", _TOPIC)
CONSUME_FAILED: Final = Metric(
    "kourou_client_consume_failed_total", Kind.COUNTER, "Failures of handlers.", _TOPIC
)
CONSUME_SECONDS: Final = Metric(
    "kourou_client_consume_seconds_total", Kind.COUNTER, "Time in handlers, added up.", _TOPIC
)
POLLED: Final = Metric("kourou_client_polled_total", Kind.COUNTER, "Messages that were polled.")
IN_HAND: Final = Metric("kourou_client_in_hand_messages", Kind.GAUGE, "Messages pulled and not consumed yet.")
QUEUES: Final = Metric("kourou_client_queues", Kind.GAUGE, "Queues assigned to the consumer.")


class CountingClient(Protocol):
    """A producer, a push consumer or a lite pull consumer, async or sync."""

    @property
    def group(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    def stats(self) -> ProducerStats | ConsumerStats | LitePullStats: ...


def metrics_text(*clients: CountingClient) -> str:
    """The counters of `clients`, which have started, in Prometheus' format, with group and client id."""
    return "".join(exposition(family for client in clients for family in client_families(client)))


def client_families(client: CountingClient) -> list[Family]:
    """The counters of one client."""
    scope = (("group", client.group), ("client_id", client.client_id))
    stats = client.stats()
    if isinstance(stats, ProducerStats):
        return list(_producer(stats, scope))
    if isinstance(stats, ConsumerStats):
        return list(_push_consumer(stats, scope))
    return [POLLED.value(stats.polled, scope), *_queues(stats, scope)]


def _producer(stats: ProducerStats, scope: Labels) -> Iterator[Family]:
    yield SENT.value(stats.sent, scope)
    yield SENT_BYTES.value(stats.sent_bytes, scope)
    yield SEND_SECONDS.value(stats.send_s, scope)
    yield FAILED.value(stats.failed, scope)
    yield RETRIED.value(stats.retried, scope)
    yield ONEWAY.value(stats.oneway, scope)
    yield IN_FLIGHT.value(stats.in_flight, scope)
    outcomes = {
        "committed": stats.transactions_committed,
        "rolled_back": stats.transactions_rolled_back,
        "unknown": stats.transactions_unknown,
    }
    if any(outcomes.values()):
        yield TRANSACTIONS.family([((name,), count) for name, count in outcomes.items()], scope)


def _push_consumer(stats: ConsumerStats, scope: Labels) -> Iterator[Family]:
    columns: list[tuple[Metric, Callable[[TopicStats], float]]] = [
        (PULLED, lambda topic: topic.pulled),
        (PULL_SECONDS, lambda topic: topic.pull_s),
        (CONSUMED, lambda topic: topic.consumed),
        (CONSUME_FAILED, lambda topic: topic.failed),
        (CONSUME_SECONDS, lambda topic: topic.consume_s),
    ]
    for metric, value in columns:
        yield metric.family([((name,), value(topic)) for name, topic in stats.topics.items()], scope)
    yield from _queues(stats, scope)


def _queues(stats: ConsumerStats | LitePullStats, scope: Labels) -> Iterator[Family]:
    yield IN_HAND.value(stats.in_hand, scope)
    yield QUEUES.value(stats.queues, scope)
