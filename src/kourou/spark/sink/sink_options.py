"""SinkOptions: the options of `df.write.format("rocketmq")` and of `df.writeStream`.

Names follow the source and Kafka's sink where users would expect them; case is ignored, as everywhere in
Spark. Created once, on the driver, and pickled to the workers. Not here: which columns are written
(sink_columns.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kourou.client.core.credentials import Credentials
from kourou.client.core.message_checks import DEFAULT_MAX_MESSAGE_BYTES
from kourou.protocol.names import send_topic_problem, user_group_problem
from kourou.spark.option_reader import OptionReader

_MAX_PAUSE_S: Final = 5.0
AT_LEAST_ONCE: Final = "at-least-once"
DEFAULT_GROUP: Final = "kourou-spark-sink"
SINK_OPTION_NAMES: Final = (
    "namesrv",
    "nameServer",
    "topic",
    "createTopic",
    "errorTopic",
    "producerGroup",
    "delivery",
    "maxMessageBytes",
    "batchBytes",
    "batchRows",
    "maxInFlightBytes",
    "sendTimeoutMs",
    "retryTimes",
    "retryIntervalMs",
    "dropReservedProperties",
    "accessKey",
    "secretKey",
    "securityToken",
    "namespace",
    "tls",
)
"""The names of all options."""
# Spark passes its own options along with ours.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
_SPARKS_PREFIXES: Final = ("asyncprogresstracking", "_asyncprogresstracking", "spark.", "__")
# Names that are valid elsewhere.
_HINTS: Final = {
    "path": 'the sink writes to topics: call save() or start() without a path, and set option("topic", …)',
    "subscribe": 'it is an option for reading; set option("topic", …) for writing',
    "kafka.bootstrap.servers": "did you mean namesrv?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How rows are sent. Secrets are never printed."""

    namesrv: str
    topic: str | None = None
    """The topic for all rows; without it the column `topic` applies."""
    create_topic: bool = False
    """Whether brokers with `autoCreateTopicEnable` may create `topic`; otherwise it must exist at the
    start."""
    error_topic: str | None = None
    """The topic for rows that no broker accepts; without it such a row fails the write."""
    producer_group: str = DEFAULT_GROUP
    delivery: str = AT_LEAST_ONCE
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    """Of a row's value (the broker's `maxMessageSize`)."""
    batch_bytes: int = 1024 * 1024
    """Rows of one topic are batched up to this size, and that of `max_message_bytes`. The cost of a request
    no longer matters then, for the broker either, and a task has several in flight."""
    batch_rows: int = 4_000
    max_in_flight_bytes: int = 8 * 1024 * 1024
    """How much a task sends ahead of the brokers' responses."""
    send_timeout_ms: int = 10_000
    retry_times: int = 20
    """Retries of transient failures: with the pauses between them a broker has more than a minute to
    restart."""
    retry_interval_ms: int = 200
    """The pause before the second attempt; doubled for each later one, up to 5 s."""
    drop_reserved_properties: bool = False
    """Whether reserved names are dropped from `properties`; otherwise such a row fails."""
    credentials: Credentials | None = None
    namespace: str | None = None
    tls: bool = False

    def pauses_s(self) -> Iterator[float]:
        """The pauses before each retry."""
        pause_s = self.retry_interval_ms / 1000
        for _ in range(self.retry_times):
            yield min(pause_s, _MAX_PAUSE_S)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    @classmethod
    def parse(cls, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> SinkOptions:
        """Parse Spark's options. ConfigError lists every problem, one per line."""
        reader = OptionReader("sink", _ours(options), SINK_OPTION_NAMES, _HINTS)
        parsed = cls(
            namesrv=reader.namesrv(environ),
            topic=_name(reader, "topic", send_topic_problem) or None,
            create_topic=reader.flag("createTopic", False),
            error_topic=_name(reader, "errorTopic", send_topic_problem) or None,
            producer_group=_name(reader, "producerGroup", user_group_problem, DEFAULT_GROUP),
            delivery=reader.choice("delivery", AT_LEAST_ONCE, [AT_LEAST_ONCE]),
            max_message_bytes=reader.size_bytes("maxMessageBytes", DEFAULT_MAX_MESSAGE_BYTES),
            batch_bytes=reader.size_bytes("batchBytes", 1024 * 1024),
            batch_rows=reader.number("batchRows", 4_000),
            max_in_flight_bytes=reader.size_bytes("maxInFlightBytes", 8 * 1024 * 1024),
            send_timeout_ms=reader.number("sendTimeoutMs", 10_000),
            retry_times=reader.number("retryTimes", 20, low=0),
            retry_interval_ms=reader.number("retryIntervalMs", 200),
            drop_reserved_properties=reader.flag("dropReservedProperties", False),
            credentials=reader.credentials(),
            namespace=reader.text("namespace") or None,
            tls=reader.flag("tls", False),
        )
        reader.finish()
        return parsed


def _ours(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are not Spark's own."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _SPARKS and not name.lower().startswith(_SPARKS_PREFIXES)
    }


def _name(reader: OptionReader, name: str, problem_of: Callable[[str], str | None], default: str = "") -> str:
    def checked(text: str) -> str:
        if problem := problem_of(text):
            raise ValueError(problem)
        return text

    return reader.value(name, default, checked)
