"""The keys of metrics, RocketMQ 5's and our own; the form is that of broker_settings.py.

Not here: the HTTP port that every server has (remoting.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.checks import labels
from kourou.config.keys import BOOL, ENUM, INT, LONG, STRING, setting

PROM: Final = "PROM"
OTLP_GRPC: Final = "OTLP_GRPC"
OTLP_HTTP: Final = "OTLP_HTTP"
DISABLE: Final = "DISABLE"

_metrics = partial(setting, "Metrics")


# The methods are generated once, for BrokerConfig.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MetricsSettings:
    """Where metrics of a broker go, and which there are."""

    # Off, as in Apache.
    metrics_exporter_type: str = _metrics(
        "metricsExporterType",
        ENUM,
        DISABLE,
        "`PROM`: Prometheus scrapes them at `metricsPromExporterPort`. `OTLP_GRPC`, and Kourou's own "
        "`OTLP_HTTP`: they are pushed to `metricsGrpcExporterTarget`; needs `pip install 'kourou[otel]'`. "
        "`DISABLE`: neither; they are served at `httpPort` and `metricsPort` in any case. Apache's `LOG` is "
        "accepted and has no effect.",
        choices=(DISABLE, OTLP_GRPC, OTLP_HTTP, PROM, "LOG"),
        live=False,
    )
    metrics_prom_exporter_port: int = _metrics(
        "metricsPromExporterPort",
        INT,
        5_557,
        "With `PROM`: the port; 0 picks a free one. `metricsPort` takes precedence.",
        low=0,
        high=65_535,
        live=False,
    )
    metrics_prom_exporter_host: str = _metrics(
        "metricsPromExporterHost",
        STRING,
        "",
        "The address of that port, and of `metricsPort`; `httpBindAddress` or `bindAddress` if not set.",
        live=False,
    )
    metrics_grpc_exporter_target: str = _metrics(
        "metricsGrpcExporterTarget",
        STRING,
        "",
        "Where to push: `http://host:4317` for `OTLP_GRPC`, `http://host:4318/v1/metrics` for `OTLP_HTTP`.",
        live=False,
        protected=True,
    )
    metrics_grpc_exporter_header: str | None = _metrics(
        "metricsGrpcExporterHeader",
        STRING,
        None,
        "Headers to push with, `name:value` separated by `,`.",
        live=False,
        secret=True,
        protected=True,
    )
    metric_grpc_exporter_interval_in_mills: int = _metrics(
        "metricGrpcExporterIntervalInMills",
        LONG,
        60_000,
        "How often to push, in ms.",
        low=1_000,
        high=3_600_000,
    )
    metric_grpc_exporter_time_out_in_mills: int = _metrics(
        "metricGrpcExporterTimeOutInMills",
        LONG,
        3_000,
        "How long a push may take, in ms.",
        low=100,
        high=60_000,
    )
    metrics_label: str = _metrics(
        "metricsLabel",
        STRING,
        "",
        "Labels that all metrics get, `name:value` separated by `,`.",
        live=False,
        check=labels,
    )
    metrics_otel_cardinality_limit: int = _metrics(
        "metricsOtelCardinalityLimit",
        INT,
        50_000,
        "How many series a scrape has at most; `kourou_metrics_dropped_series` counts what is left out.",
        low=1_000,
        high=10_000_000,
    )
    enable_message_store_metrics: bool = _metrics(
        "enableMessageStoreMetrics", BOOL, True, "Metrics of storage and timers."
    )
    enable_connection_metrics: bool = _metrics(
        "enableConnectionMetrics", BOOL, True, "Metrics of connected clients."
    )
    enable_transaction_metrics: bool = _metrics(
        "enableTransactionMetrics", BOOL, True, "Metrics of transactions."
    )
    enable_stats_metrics: bool = _metrics(
        "enableStatsMetrics", BOOL, True, "Metrics of the broker itself: topics, groups, permission."
    )
    enable_request_metrics: bool = _metrics(
        "enableRequestMetrics", BOOL, True, "Metrics of messages, by topic and by group."
    )
    enable_remoting_metrics: bool = _metrics(
        "enableRemotingMetrics", BOOL, True, "Metrics of requests. Without them none is measured.", live=False
    )
    enable_lag_and_dlq_metrics: bool = _metrics(
        "enableLagAndDlqMetrics", BOOL, True, "Metrics of consumer lag and dead letters."
    )
    metrics_lag_per_queue: bool = _metrics(
        "metricsLagPerQueue",
        BOOL,
        False,
        "Kourou's own: the lag of each queue, too, as `kourou_consumer_lag_queue_messages`.",
        shown=False,
    )
