"""OtlpPush: families sent to an OpenTelemetry collector, as totals since the start.

OpenTelemetry's exporters carry the data; its meters and readers are not used: they would read counters of the
event loop from their own thread, and have no instrument for a histogram that is counted elsewhere. Imported
where a push is configured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kourou.errors import ConfigError
from kourou.metrics.families import Distribution, Family, Kind, Labels, Metric, Sample

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

_SCOPE: Final = "kourou"
_SAMPLES_PER_TURN: Final = 400


@dataclass(frozen=True, slots=True)
class OtlpTarget:
    """Where to push. With `is_grpc` by gRPC, else by HTTP with protobuf."""

    endpoint: str
    headers: tuple[tuple[str, str], ...]
    timeout_ms: int
    is_grpc: bool


@dataclass(frozen=True, slots=True)
class DrawnFamily:
    """A family whose samples are drawn: it may be used in another thread."""

    metric: Metric
    scope: Labels
    samples: Sequence[Sample]


async def draw(families: Iterable[Family], max_series: int) -> list[DrawnFamily]:
    """Draw the samples of families, up to a limit, in turns with other work of the event loop."""
    left, turn = max_series, 0
    drawn = []
    for family in families:
        samples: list[Sample] = []
        for sample in family.samples:
            if left <= 0:
                break
            samples.append(sample)
            left, turn = left - 1, turn + 1
            if turn % _SAMPLES_PER_TURN == 0:
                await asyncio.sleep(0)
        drawn.append(DrawnFamily(family.metric, family.scope, samples))
    return drawn


class OtlpPush:
    """Pushes to one target. ConfigError if the packages for it are not installed."""

    def __init__(self, target: OtlpTarget) -> None:
        self._exporter = _exporter(target)
        self._timeout_ms = target.timeout_ms
        self._start_ns = time.time_ns()

    def push(self, families: Sequence[DrawnFamily]) -> bool:
        """Send families; False if the collector did not take them. Waits; in any thread, one at a time."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        data = metrics_data(families, self._start_ns, time.time_ns())
        return self._exporter.export(data, timeout_millis=self._timeout_ms) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Let go of connections."""
        self._exporter.shutdown(timeout_millis=self._timeout_ms)


def _exporter(target: OtlpTarget) -> MetricExporter:
    try:
        exporter: Any
        if target.is_grpc:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Grpc

            exporter = Grpc
        else:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http

            exporter = Http
    except ImportError as error:
        kind, package = (
            ("OTLP_GRPC", "opentelemetry-exporter-otlp-proto-grpc")
            if target.is_grpc
            else ("OTLP_HTTP", "'kourou[otel]'")
        )
        raise ConfigError(
            f"metricsExporterType={kind}: a package is missing ({error.name}): pip install {package}"
        ) from error
    made: MetricExporter = exporter(
        endpoint=target.endpoint, headers=dict(target.headers), timeout=target.timeout_ms / 1000
    )
    return made


def metrics_data(families: Iterable[DrawnFamily], start_ns: int, now_ns: int) -> Any:
    """OpenTelemetry's form of families."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    scope_metrics = ScopeMetrics(
        InstrumentationScope(_SCOPE),
        [_metric(family, start_ns, now_ns) for family in families if family.samples],
        "",
    )
    resource = Resource.create({"service.name": _SCOPE})
    return MetricsData([ResourceMetrics(resource, [scope_metrics], "")])


def _metric(family: DrawnFamily, start_ns: int, now_ns: int) -> Any:
    from opentelemetry.sdk.metrics import export

    cumulative = export.AggregationTemporality.CUMULATIVE
    points: list[Any] = []
    for values, value in family.samples:
        attributes = {**dict(family.scope), **dict(zip(family.metric.labels, values, strict=True))}
        if isinstance(value, Distribution):
            points.append(
                export.HistogramDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=start_ns,
                    time_unix_nano=now_ns,
                    count=sum(value.counts),
                    sum=value.total,
                    bucket_counts=value.counts,
                    explicit_bounds=value.bounds,
                    min=0.0,
                    max=0.0,
                )
            )
        else:
            points.append(export.NumberDataPoint(attributes, start_ns, now_ns, value))
    data: Any
    if family.metric.kind is Kind.HISTOGRAM:
        data = export.Histogram(points, cumulative)
    elif family.metric.kind is Kind.COUNTER:
        data = export.Sum(points, cumulative, is_monotonic=True)
    else:
        data = export.Gauge(points)
    return export.Metric(family.metric.name, family.metric.help, "", data)
