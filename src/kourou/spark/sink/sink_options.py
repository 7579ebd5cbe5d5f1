"""SinkOptions: the options of `df.write.format("rocketmq")` and of `df.writeStream`.

Names follow the source and Kafka's sink where users would expect them; case is ignored, as everywhere in
Spark. Created once, on the driver, and pickled to the workers. Not here: which columns are written
(sink_columns.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kourou.client.core.credentials import Credentials
from kourou.client.core.message_checks import DEFAULT_MAX_MESSAGE_BYTES
from kourou.protocol.atomic import MAX_TIMEOUT_MS
from kourou.protocol.names import send_topic_problem, user_group_problem
from kourou.spark.option_reader import OptionReader, parse_duration_ms

_MAX_PAUSE_S: Final = 5.0
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
DEFAULT_GROUP: Final = "kourou-spark-sink"
SINK_OPTION_NAMES: Final = (
    "namesrv",
    "nameServer",
    "topic",
    "createTopic",
    "errorTopic",
    "producerGroup",
    "guarantee",
    "sinkId",
    "writeId",
    "replaceQuery",
    "stageTimeoutMs",
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
_EXACTLY_ONCE_ONLY: Final = ("sinkId", "writeId", "replaceQuery", "stageTimeoutMs")
# With what is added on the way to a name at brokers, these stay within their limits.
_MAX_SINK_ID: Final = 40
_MAX_WRITE_ID: Final = 200
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
    guarantee: str = AT_LEAST_ONCE
    sink_id: str | None = None
    """Identifies the sink of an exactly-once write in its cluster."""
    write_id: str | None = None
    """Identifies an exactly-once batch write among those of the sink."""
    replace_query: str | None = None
    """The query, or writeId, that the sink belonged to and that this one replaces."""
    stage_timeout_ms: int = 3_600_000
    """How long a batch may take from its start to its commit: brokers drop what is staged after it."""
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
            guarantee=reader.choice("guarantee", AT_LEAST_ONCE, [AT_LEAST_ONCE, EXACTLY_ONCE]),
            sink_id=reader.value("sinkId", None, _sink_id),
            write_id=reader.value("writeId", None, _write_id),
            replace_query=reader.text("replaceQuery") or None,
            stage_timeout_ms=reader.value("stageTimeoutMs", 3_600_000, _stage_timeout_ms),
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
        reader.problems += _exactly_once_problems(parsed, options)
        reader.finish()
        return parsed

    @property
    def is_exactly_once(self) -> bool:
        return self.guarantee == EXACTLY_ONCE


def _exactly_once_problems(parsed: SinkOptions, options: Mapping[str, str]) -> Iterator[str]:
    given = {name.lower(): value for name, value in options.items()}
    if not parsed.is_exactly_once:
        for name in _EXACTLY_ONCE_ONLY:
            if name.lower() in given:
                yield f"option {name}: only with guarantee={EXACTLY_ONCE}"
        return
    if "sinkid" not in given:
        yield (
            f"option sinkId: needed for guarantee={EXACTLY_ONCE}: a name for this sink that is unique in the "
            "cluster and stays the same over restarts"
        )
    if given.get("asyncprogresstrackingenabled", "").strip().lower() == "true":
        yield (
            f"option asyncProgressTrackingEnabled: not with guarantee={EXACTLY_ONCE}, as a restart would "
            "form other batches than before"
        )


def _sink_id(text: str) -> str:
    if not re.fullmatch(rf"[A-Za-z0-9._-]{{1,{_MAX_SINK_ID}}}", text):
        raise ValueError(f"must be 1 to {_MAX_SINK_ID} letters, digits, dots, hyphens and underscores")
    return text


def _write_id(text: str) -> str:
    if not 0 < len(text) <= _MAX_WRITE_ID:
        raise ValueError(f"must be 1 to {_MAX_WRITE_ID} characters")
    return text


def _stage_timeout_ms(text: str) -> int:
    duration_ms = parse_duration_ms(text)
    if not 0 < duration_ms <= MAX_TIMEOUT_MS:
        raise ValueError(f"must be a duration up to {MAX_TIMEOUT_MS // 3_600_000}h")
    return duration_ms


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
