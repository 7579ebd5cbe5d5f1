"""What a name server exposes as metrics. Apache's name servers have none, so the names are our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kourou.metrics.families import Distribution, Family, Kind, Labels, Metric, Sample
from kourou.metrics.process import LoopLag, process_families

if TYPE_CHECKING:
    from kourou.access.gate import AccessGate
    from kourou.namesrv.state import NamesrvState
    from kourou.transport.request_latency import RequestLatency

BROKERS: Final = Metric("kourou_namesrv_brokers", Kind.GAUGE, "Registered brokers.", ("cluster", "role"))
TOPICS: Final = Metric("kourou_namesrv_topics", Kind.GAUGE, "Topics with a route.")
CONNECTIONS: Final = Metric("kourou_namesrv_connections", Kind.GAUGE, "Open connections.")
REQUESTS: Final = Metric(
    "kourou_namesrv_request_latency_seconds",
    Kind.HISTOGRAM,
    "From the arrival of a request to its response.",
    ("request_code", "response_code"),
)
REFUSED_REQUESTS: Final = Metric(
    "kourou_namesrv_access_refusals_total",
    Kind.COUNTER,
    "Requests that access control refused; no series without it.",
    ("kind",),
)


def namesrv_families(
    state: NamesrvState,
    requests: RequestLatency,
    loop_lag: LoopLag,
    connection_count: int,
    scope: Labels,
    *,
    access: AccessGate | None = None,
    with_process: bool = True,
) -> Iterator[Family]:
    """The families of a name server; without those of the process where a broker in it has them."""
    if with_process:
        yield from process_families(scope)
        yield loop_lag.family(scope)
    yield TOPICS.value(len(state.routes.tables.topics), scope)
    yield CONNECTIONS.value(connection_count, scope)
    yield BROKERS.family(list(_brokers(state)), scope)
    yield REQUESTS.family(_in_seconds(requests), scope)
    if access is not None:
        yield REFUSED_REQUESTS.family([((kind,), count) for kind, count in access.refusal_counts()], scope)


def _brokers(state: NamesrvState) -> Iterator[Sample]:
    counts: dict[tuple[str, str], int] = {}
    for group in state.routes.tables.groups.values():
        for broker_id in group.brokers:
            key = group.cluster, "slave" if broker_id else "master"
            counts[key] = counts.get(key, 0) + 1
    yield from counts.items()


def _in_seconds(requests: RequestLatency) -> Iterator[Sample]:
    for labels, value in requests.samples():
        assert isinstance(value, Distribution)
        bounds_s = [bound_ms / 1000 for bound_ms in value.bounds]
        yield labels[:2], Distribution(bounds_s, value.counts, value.total / 1000)
