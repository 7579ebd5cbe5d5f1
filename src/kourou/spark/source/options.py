"""SourceOptions: the options of `spark.read.format("rocketmq")` and of `spark.readStream`.

Names are Kafka's where users would expect them; case is ignored, as everywhere in Spark. Created once, on the
driver, and pickled to the workers. Not here: what follows from them (planning.py).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kourou.client.core.credentials import Credentials
from kourou.client.core.settings import ClientOptions
from kourou.client.core.subscription import ExpressionType
from kourou.errors import ProtocolError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.filter import compile_filter
from kourou.protocol.names import topic_problem, user_group_problem
from kourou.protocol.tags import SUB_ALL, parse_tag_expression
from kourou.spark.option_reader import OptionReader
from kourou.spark.source.offset_spec import LATEST_SPEC, OffsetSpec, check_order, read_offset_spec

_MIB: Final = 1024 * 1024
_MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
"""Kafka's."""
_MAX_PIECE_BYTES: Final = 256 * _MIB
"""Offsets in an Arrow batch have 32 bits, and chunks of both kinds may share one batch."""
SOURCE_OPTION_NAMES: Final = (
    "namesrv",
    "nameServer",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "subExpression",
    "expressionType",
    "groupId",
    "includeSystemTopics",
    "columns",
    "rowFormat",
    "includeHeaders",
    "propertyErrors",
    "store",
    "verifyCrc",
    "fetchBytes",
    "fetchesInFlight",
    "fetchRetries",
    "batchBytes",
    "pollTimeoutMs",
    "discoveryIntervalMs",
    "requestTimeoutMs",
    "accessKey",
    "secretKey",
    "securityToken",
    "namespace",
    "tls",
)
"""The names of all options."""
ENDING_OPTION_NAMES: Final = tuple(name for name in SOURCE_OPTION_NAMES if name.startswith("ending"))
"""Options for the end of a batch: a stream has no end."""
_HINTS: Final = {
    "path": 'use load() without a path, and option("subscribe", …) for topics, or option("store", …)',
    "topic": "did you mean subscribe?",
    "topics": "did you mean subscribe?",
    "kafka.bootstrap.servers": "did you mean namesrv?",
    "kafka.group.id": "did you mean groupId?",
    "groupidprefix": "did you mean groupId?",
    "pushfilters": (
        "Spark applies the filters of one use of a DataFrame to its other uses, which lost rows; "
        "narrow the read with subExpression (tags or SQL92), assign, and starting… and ending… options"
    ),
}
"""Names that are valid elsewhere, or were valid once."""
PUSH_FILTERS_OPTION: Final = "__kourouPushFilters"
"""Not for users. Spark (4.3) keeps one plan for all scans of a DataFrame, that of the last filters: rows are
correct only if a DataFrame is scanned once, with one set of filters. `kourou pipeline sql` creates such
DataFrames, and recognises them by the text of its query."""
_ASSIGN_FORM: Final = 'the format is {"topic": {"broker-a": [0, 1]}}'
_NOT_FOR_STORES: Final = (
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
)
_NO_TOPICS: Final[tuple[str, ...]] = ()
_NO_QUEUES: Final[tuple[MessageQueue, ...]] = ()
_WHICH: Final = ("subscribe", "subscribePattern", "assign")
WHAT_TO_READ: Final = (*_WHICH, "store")
"""Every source needs one of these options."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a cluster. Equal objects share their connections. Secrets are never printed."""

    namesrv: str
    group: str | None = None
    credentials: Credentials | None = None
    namespace: str | None = None
    tls: bool = False
    request_timeout_ms: int = 3_000

    def client_options(self) -> ClientOptions:
        """The corresponding options of a client."""
        return ClientOptions(
            namesrv=self.namesrv,
            credentials=self.credentials,
            namespace=self.namespace,
            tls=self.tls,
            request_timeout_ms=self.request_timeout_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, from where to where, and in what chunks."""

    connection: Connection
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    queues: tuple[MessageQueue, ...] = ()
    """From `assign`; an empty broker name stands for every broker of the topic."""
    starting: OffsetSpec | None = None
    ending: OffsetSpec = LATEST_SPEC
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = _MAX_TRIGGER_DELAY_MS
    """How long a batch waits for `min_offsets_per_trigger`."""
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    expression: str = SUB_ALL
    expression_type: ExpressionType = "TAG"
    group_id: str | None = None
    include_system_topics: bool = False
    columns: str | None = None
    """The columns to read if there is no `.schema(…)`."""
    row_format: str = "rocketmq"
    include_headers: bool = False
    property_errors: str = "fail"
    push_filters: bool = False
    store: str | None = None
    verify_crc: bool = True
    """Whether the store source checks the CRC of each body."""
    fetch_bytes: int = 4 * _MIB
    fetches_in_flight: int = 2
    fetch_retries: int = 20
    """One second apart: enough for a broker to restart."""
    batch_bytes: int = 4 * _MIB
    """The size of an Arrow batch: larger ones gain nothing, smaller ones cost time."""
    poll_timeout_ms: int = 500
    """How long a stream waits for messages before it reports an empty batch to Spark."""
    discovery_interval_ms: int = 10_000
    """How often a stream looks for new topics, brokers and queues."""

    @classmethod
    def parse(cls, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> SourceOptions:
        """Parse Spark's options. ConfigError lists every problem."""
        reader = OptionReader("source", options, (*SOURCE_OPTION_NAMES, PUSH_FILTERS_OPTION), _HINTS)
        parsed = cls(
            **_which(reader),
            **_from_to(reader),
            **_filter(reader),
            **_rows(reader),
            **_pieces(reader),
            connection=_connection(reader, environ),
            group_id=_group(reader),
            store=reader.text("store") or None,
            verify_crc=reader.flag("verifyCrc", True),
        )
        _check_store(reader)
        reader.finish()
        return parsed

    @property
    def is_filtered(self) -> bool:
        """Whether the brokers filter messages, by tags or SQL92."""
        return self.expression not in ("", SUB_ALL)


# -- groups of options -----------------------------------------------------------------------------


def _connection(reader: OptionReader, environ: Mapping[str, str]) -> Connection:
    return Connection(
        reader.namesrv(environ, is_needed=not reader.has("store")),
        reader.text("groupId") or None,
        reader.credentials(),
        reader.text("namespace") or None,
        reader.flag("tls", False),
        reader.number("requestTimeoutMs", 3_000),
    )


def _check_store(reader: OptionReader) -> None:
    """Report options that need a broker."""
    if reader.has("store"):
        for name in _NOT_FOR_STORES:
            if reader.has(name):
                reader.problems.append(
                    f"{name} cannot be used with the store source; select by topic and time, or filter rows"
                )
        if reader.text("expressionType").upper() == "SQL92":
            reader.problems.append(
                "expressionType=SQL92 needs a broker; filter the store source's rows instead"
            )


def _group(reader: OptionReader) -> str | None:
    group = reader.text("groupId")
    if group and (problem := user_group_problem(group)):
        reader.problems.append(f"option groupId: {problem}")
    return group or None


def _which(reader: OptionReader) -> dict[str, Any]:
    given = [name for name in _WHICH if reader.has(name)]
    if len(given) > 1:
        reader.problems.append(f"{' and '.join(given)} are mutually exclusive: use one of them")
    if not given and not reader.has("store"):
        reader.problems.append(
            "nothing to read: set subscribe (topics), subscribePattern (a regular expression) "
            "or assign (queues)"
        )
    return {
        "topics": reader.value("subscribe", _NO_TOPICS, _topics),
        "topic_pattern": reader.value("subscribePattern", None, _pattern),
        "queues": reader.value("assign", _NO_QUEUES, _queues),
        "include_system_topics": reader.flag("includeSystemTopics", False),
    }


def _from_to(reader: OptionReader) -> dict[str, Any]:
    starting, ending = (
        read_offset_spec(reader, "starting", None),
        read_offset_spec(reader, "ending", LATEST_SPEC),
    )
    check_order(reader, starting, ending)
    return {
        "starting": starting,
        "ending": ending,
        "fail_on_data_loss": reader.flag("failOnDataLoss", True),
    }


def _filter(reader: OptionReader) -> dict[str, Any]:
    expression_type = reader.choice("expressionType", "TAG", ("TAG", "SQL92"))
    is_sql = expression_type == "SQL92"
    expression = reader.value("subExpression", SUB_ALL, _condition if is_sql else _tags) or SUB_ALL
    if is_sql and not reader.text("subExpression"):
        reader.problems.append("expressionType=SQL92 needs a subExpression, such as price > 5")
    return {
        "expression": expression,
        "expression_type": expression_type,
        "push_filters": reader.flag(PUSH_FILTERS_OPTION, False),
    }


def _rows(reader: OptionReader) -> dict[str, Any]:
    return {
        "columns": reader.text("columns") or None,
        "row_format": reader.choice("rowFormat", "rocketmq", ("rocketmq", "kafka")),
        "include_headers": reader.flag("includeHeaders", False),
        "property_errors": reader.choice("propertyErrors", "fail", ("fail", "null")),
    }


def _pieces(reader: OptionReader) -> dict[str, Any]:
    max_offsets, min_offsets = (
        reader.number("maxOffsetsPerTrigger", 0),
        reader.number("minOffsetsPerTrigger", 0),
    )
    if max_offsets and min_offsets > max_offsets:
        reader.problems.append("minOffsetsPerTrigger is greater than maxOffsetsPerTrigger")
    if reader.has("maxTriggerDelay") and not min_offsets:
        reader.problems.append("maxTriggerDelay needs minOffsetsPerTrigger, for which it limits the wait")
    return {
        "max_offsets_per_trigger": max_offsets or None,
        "min_offsets_per_trigger": min_offsets or None,
        "max_trigger_delay_ms": reader.duration_ms("maxTriggerDelay", _MAX_TRIGGER_DELAY_MS),
        "max_bytes_per_trigger": reader.size_bytes("maxBytesPerTrigger", 0) or None,
        "min_partitions": reader.number("minPartitions", 0) or None,
        "fetch_bytes": reader.size_bytes("fetchBytes", 4 * _MIB, high=_MAX_PIECE_BYTES),
        "fetches_in_flight": reader.number("fetchesInFlight", 2, high=64),
        "fetch_retries": reader.number("fetchRetries", 20, low=0),
        "batch_bytes": reader.size_bytes("batchBytes", 4 * _MIB, high=_MAX_PIECE_BYTES),
        "poll_timeout_ms": reader.number("pollTimeoutMs", 500, low=0),
        "discovery_interval_ms": reader.number("discoveryIntervalMs", 10_000, low=0),
    }


# -- single values ---------------------------------------------------------------------------------


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not topics:
        raise ValueError("no topic is named; separate several with commas")
    for topic in topics:
        if problem := topic_problem(topic):
            raise ValueError(problem)
    return topics


def _tags(text: str) -> str:
    return _checked(text, parse_tag_expression)


def _condition(text: str) -> str:
    return _checked(text, compile_filter) if text else text


def _checked(text: str, parse: Callable[[str], object]) -> str:
    try:
        parse(text)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a valid regular expression: {error}") from None
    return text


def _queues(text: str) -> tuple[MessageQueue, ...]:
    """`{"topic": {"broker-a": [0, 1]}}`, or Kafka's `{"topic": [0, 1]}` for every broker."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    queues = {
        MessageQueue(topic, broker_name, queue_id)
        for topic, brokers in (tree.items() if isinstance(tree, dict) else ())
        for broker_name, ids in (brokers if isinstance(brokers, dict) else {"": brokers}).items()
        for queue_id in _queue_ids(ids)
    }
    if not queues:
        raise ValueError(_ASSIGN_FORM)
    return tuple(sorted(queues))


def _queue_ids(ids: Any) -> list[int]:
    found: list[Any] = ids if isinstance(ids, list) else [ids]
    for queue_id in found:
        if not isinstance(queue_id, int) or isinstance(queue_id, bool) or not 0 <= queue_id < 1 << 31:
            raise ValueError(f"{queue_id!r:.80} is not a queue id; {_ASSIGN_FORM}")
    return found
