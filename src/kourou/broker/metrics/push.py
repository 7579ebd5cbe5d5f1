"""MetricsPush: sends a broker's metrics to a collector, each `metricGrpcExporterIntervalInMills`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kourou.config.checks import split_labels
from kourou.config.metrics_settings import OTLP_GRPC
from kourou.errors import ConfigError
from kourou.metrics.otlp import OtlpPush, OtlpTarget, draw

if TYPE_CHECKING:
    from kourou.broker.metrics.broker_metrics import BrokerMetrics
    from kourou.broker.settings import LiveConfig

_log = logging.getLogger(__name__)


class MetricsPush:
    """Pushes until it is cancelled. ConfigError: it cannot, as configured."""

    def __init__(self, metrics: BrokerMetrics, config: LiveConfig) -> None:
        current = config.current
        if not current.metrics_grpc_exporter_target:
            raise ConfigError(
                f"metricsExporterType={current.metrics_exporter_type} needs metricsGrpcExporterTarget, the "
                "address of a collector, as in http://127.0.0.1:4318/v1/metrics"
            )
        self._metrics = metrics
        self._config = config
        self._is_failing = False
        self._push = OtlpPush(
            OtlpTarget(
                endpoint=current.metrics_grpc_exporter_target,
                headers=tuple(split_labels(current.metrics_grpc_exporter_header or "")),
                timeout_ms=current.metric_grpc_exporter_time_out_in_mills,
                is_grpc=current.metrics_exporter_type == OTLP_GRPC,
            )
        )

    async def run(self) -> None:
        """Push again and again. A collector that is away is logged once."""
        while True:
            await asyncio.sleep(self._config.current.metric_grpc_exporter_interval_in_mills / 1000)
            try:
                await self.push_once()
            except Exception:  # a broker must not stop because it cannot report
                _log.exception("metrics cannot be pushed")

    async def push_once(self) -> None:
        """Push now."""
        config = self._config.current
        families = await draw(await self._metrics.families(), config.metrics_otel_cardinality_limit)
        is_taken = await asyncio.to_thread(self._push.push, families)
        if is_taken is self._is_failing:
            self._is_failing = not is_taken
            target = config.metrics_grpc_exporter_target
            if is_taken:
                _log.info("%s takes metrics again", target)
            else:
                _log.warning("%s does not take metrics; they are sent again later", target)

    def close(self) -> None:
        """Let go of connections."""
        self._push.close()
