"""What a proxy exposes as metrics. What it sends to brokers is in their metrics."""

from __future__ import annotations

from typing import Final

from kourou.metrics.families import Family, Kind, Metric
from kourou.proxy.call_latency import CallLatency
from kourou.proxy.http2.server import GrpcServer
from kourou.proxy.services import Services

CALLS: Final = Metric(
    "kourou_proxy_call_latency_seconds",
    Kind.HISTOGRAM,
    "From a gRPC call to its response, by the status in it; without Telemetry.",
    ("rpc", "status"),
)
CLIENTS: Final = Metric("kourou_proxy_clients", Kind.GAUGE, "Connected gRPC clients.")
TELEMETRY: Final = Metric(
    "kourou_proxy_telemetry_streams", Kind.GAUGE, "Open Telemetry streams whose clients have sent settings."
)
CONNECTIONS: Final = Metric("kourou_proxy_connections", Kind.GAUGE, "Open connections of gRPC clients.")
OPEN_CALLS: Final = Metric(
    "kourou_proxy_open_calls", Kind.GAUGE, "Open calls, those that wait for messages and streams included."
)
HELD: Final = Metric(
    "kourou_proxy_held_messages",
    Kind.GAUGE,
    "Messages that push consumers have and the proxy keeps invisible until they are acknowledged.",
)
RENEWALS: Final = Metric(
    "kourou_proxy_renewals_total",
    Kind.COUNTER,
    "Renewals of their invisible time: `renewed`, `failed`, `given_up` (delivered again), `not_held` (there "
    "were too many).",
    ("outcome",),
)


def proxy_families(server: GrpcServer, services: Services, latency: CallLatency) -> list[Family]:
    """The families of a proxy."""
    clients = list(services.clients)
    outcomes = services.renewals.counts._asdict()
    return [
        CALLS.family(latency.samples()),
        CLIENTS.value(len(clients)),
        TELEMETRY.value(sum(len(client.streams) for client in clients)),
        CONNECTIONS.value(len(server.connections)),
        OPEN_CALLS.value(server.calls),
        HELD.value(len(services.held)),
        RENEWALS.family([((outcome,), count) for outcome, count in outcomes.items()]),
    ]
