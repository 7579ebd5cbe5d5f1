"""How many messages wait for a time of their own, topic by topic (61)."""

from __future__ import annotations

from msgspec import field

from kourou.protocol.bodies.shape import Body, Int64
from kourou.protocol.bodies.topics import DataVersion


class TimerMetric(Body):
    """The messages for one topic that wait; `time_stamp` is when their number changed last."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetricsSerializeWrapper(Body):
    """All of a broker's topics that had such messages (61), also the file `config/timermetrics`."""

    timing_count: dict[str, TimerMetric] = {}
    data_version: DataVersion = field(default_factory=DataVersion)
