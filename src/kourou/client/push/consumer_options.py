"""ConsumerOptions: the options of a push consumer besides the common ones; defaults are Java's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, Protocol

from kourou.argument_types import check_field_types
from kourou.client.core.message_checks import check_topic
from kourou.client.core.settings import ClientOptions, ClientSettings, split_options
from kourou.client.core.strategies import AllocateAveragely, AllocateStrategy, check_strategy
from kourou.client.pop.lease_calls import check_invisible_ms
from kourou.client.pop.popped import MAX_POP_MESSAGES
from kourou.client.push.handlers import ConsumerHook, check_consumer_hooks
from kourou.protocol.bodies import ConsumeFromWhere, MessageModel, MessageQueue
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC

ConsumeFrom = Literal["last", "first"] | datetime
Model = Literal["clustering", "broadcasting"]
Mode = Literal["pull", "pop"]

DEFAULT_MAX_RECONSUME_TIMES: Final = 16
UNLIMITED: Final = 2**31 - 1
_AT_LEAST: Final = {
    **dict.fromkeys(("concurrency", "batch_size", "pull_batch_size", "pull_threshold_messages"), 1),
    **dict.fromkeys(("pop_batch_size", "pop_threshold_messages"), 1),
    **dict.fromkeys(("pull_threshold_bytes", "max_span", "consume_timeout_ms", "suspend_timeout_ms"), 1),
    **dict.fromkeys(("persist_interval_ms", "rebalance_interval_ms"), 1),
    **dict.fromkeys(("pull_interval_ms", "stop_timeout_ms"), 0),
    "max_reconsume_times": -1,
}
_HALF_AN_HOUR_MS: Final = 30 * 60 * 1000


class TransactionalOffsets(Protocol):
    """Offsets that handlers store in their own transactions. The methods block."""

    def read_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The next offset to consume; None if there is none."""
        ...

    def store_offset(
        self, group: str, queue: MessageQueue, queue_offset: int, *, is_reset: bool = False
    ) -> None:
        """Store an offset without a handler. It moves forward only, unless `is_reset`."""
        ...


class AsyncTransactionalOffsets(Protocol):
    """The same with async methods."""

    async def read_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The next offset to consume; None if there is none."""
        ...

    async def store_offset(
        self, group: str, queue: MessageQueue, queue_offset: int, *, is_reset: bool = False
    ) -> None:
        """Store an offset without a handler. It moves forward only, unless `is_reset`."""
        ...


class ConsumerKeywords(ClientOptions, total=False):
    """The keyword arguments of a push consumer; see ConsumerOptions for what they mean."""

    model: Model
    mode: Mode
    consume_from: ConsumeFrom
    orderly: bool
    strategy: AllocateStrategy
    concurrency: int
    batch_size: int
    pull_batch_size: int
    pull_interval_ms: int
    pop_batch_size: int
    pop_threshold_messages: int
    invisible_ms: int
    max_reconsume_times: int
    consume_timeout_ms: int
    suspend_ms: int
    pull_threshold_messages: int
    pull_threshold_bytes: int
    max_span: int
    suspend_timeout_ms: int
    persist_interval_ms: int
    rebalance_interval_ms: int
    stop_timeout_ms: int
    offset_store_dir: str | Path | None
    offsets: TransactionalOffsets | AsyncTransactionalOffsets | None
    hooks: Sequence[ConsumerHook]
    trace: bool
    trace_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a push consumer works."""

    model: Model = "clustering"
    """`clustering`: the group shares the messages; `broadcasting`: each consumer gets all of them."""
    mode: Mode = "pull"
    """`pull`: each queue belongs to one consumer of the group; `pop`: every consumer gets messages of every
    queue, which needs brokers of RocketMQ 5, or Kourou. All members of a group have to use the same."""
    consume_from: ConsumeFrom = "last"
    """Where a group without an offset begins: `last`, `first` or a `datetime`. In a queue whose first message
    is still in the broker's memory, a new group always begins there."""
    orderly: bool = False
    """Whether the messages of a queue are handled one after the other."""
    strategy: AllocateStrategy = AllocateAveragely()
    """How queues are assigned within a group: a strategy of `kourou.client`."""
    concurrency: int = 20
    """Maximum number of concurrent handlers (`consumeThreadMax`)."""
    batch_size: int = 1
    """Maximum number of messages per call; above 1 a handler gets a list (`consumeMessageBatchMaxSize`)."""
    pull_batch_size: int = 32
    """Maximum number of messages of a pull (`pullBatchSize`)."""
    pull_interval_ms: int = 0
    """A pause after each pull of a queue (`pullInterval`)."""
    pop_batch_size: int = 32
    """Maximum number of messages of a pop, at most 32 (`popBatchNums`)."""
    pop_threshold_messages: int = 96
    """Popped, unconsumed messages at which popping stops, if `concurrency` does not stop it before
    (`popThresholdForQueue`)."""
    invisible_ms: int = 60_000
    """How long a popped message is invisible to others, from 1 s to 12 h: longer than it waits here and is
    handled, or it is delivered twice (`popInvisibleTime`)."""
    max_reconsume_times: int = -1
    """Maximum number of retries of a message; -1: 16, or unlimited if orderly."""
    consume_timeout_ms: int = 15 * 60 * 1000
    """Timeout of a handler (`consumeTimeout`)."""
    suspend_ms: int = 1_000
    """How long an orderly queue pauses after a failure (`suspendCurrentQueueTimeMillis`)."""
    pull_threshold_messages: int = 1_000
    """Unconsumed messages of a queue at which pulling stops (`pullThresholdForQueue`)."""
    pull_threshold_bytes: int = 100 * 1024 * 1024
    """The same in bytes (`pullThresholdSizeForQueue`, there in MiB)."""
    max_span: int = 2_000
    """Limit of the span of unconsumed offsets, per queue (`consumeConcurrentlyMaxSpan`)."""
    suspend_timeout_ms: int = 15_000
    """How long a broker holds a pull until there are messages (`brokerSuspendMaxTimeMillis`)."""
    persist_interval_ms: int = 5_000
    """How often offsets are stored."""
    rebalance_interval_ms: int = 20_000
    """How often queues are reassigned, besides when the group changes."""
    stop_timeout_ms: int = 30_000
    """How long `stop` waits for running handlers."""
    offset_store_dir: str | Path | None = None
    """Where a broadcasting consumer stores its offsets; None: `~/.rocketmq_offsets`."""
    offsets: TransactionalOffsets | AsyncTransactionalOffsets | None = None
    """A store of `@idempotent` handlers, such as `DbApiStore`, that keeps the offsets too: each in the
    transaction of its handler. Needs `orderly`. None: at the brokers."""
    hooks: Sequence[ConsumerHook] = ()
    """`ConsumerHook`s of `kourou.client`, called around each handler."""
    trace: bool = False
    """Whether to write Apache's trace of each consumed message (`enableMsgTrace`)."""
    trace_topic: str = RMQ_SYS_TRACE_TOPIC
    """The topic of the trace (`traceTopic`)."""

    def __post_init__(self) -> None:
        check_field_types(self)
        if self.model not in ("clustering", "broadcasting"):
            raise ValueError(f"model is 'clustering' or 'broadcasting', not {self.model!r}")
        if not isinstance(self.consume_from, datetime) and self.consume_from not in ("last", "first"):
            raise ValueError(f"consume_from is 'last', 'first' or a datetime, not {self.consume_from!r}")
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        check_strategy(self.strategy)
        self._check_mode()
        self._check_offsets()
        check_consumer_hooks(self.hooks)
        check_topic(self.trace_topic)
        if not 10 <= self.suspend_ms <= 30_000:
            raise ValueError(f"suspend_ms is {self.suspend_ms}; it must be from 10 to 30000")

    def _check_mode(self) -> None:
        if self.mode not in ("pull", "pop"):
            raise ValueError(f"mode is 'pull' or 'pop', not {self.mode!r}")
        check_invisible_ms("invisible_ms", self.invisible_ms)
        if self.pop_batch_size > MAX_POP_MESSAGES:
            raise ValueError(
                f"pop_batch_size is {self.pop_batch_size}; it must be at most {MAX_POP_MESSAGES}"
            )
        if not self.is_pop:
            return
        if self.orderly or self.is_broadcasting:
            what = "orderly=True" if self.orderly else "model='broadcasting'"
            raise ValueError(f"mode='pop' cannot be combined with {what}: give mode='pull'")
        if isinstance(self.consume_from, datetime):
            raise ValueError("mode='pop' begins at 'first' or 'last', not at a time: give mode='pull'")

    def _check_offsets(self) -> None:
        if self.offsets is None:
            return
        if not (hasattr(self.offsets, "read_offset") and hasattr(self.offsets, "store_offset")):
            raise TypeError(
                "offsets is a store of kourou.client that keeps them in a database, such as DbApiStore, "
                f"not {self.offsets!r}"
            )
        if not self.orderly or self.is_broadcasting:
            raise ValueError(
                "offsets=store needs orderly=True and clustering: one offset per queue cannot tell which "
                "messages are consumed if they are handled concurrently"
            )

    @property
    def is_pop(self) -> bool:
        """Whether messages are popped."""
        return self.mode == "pop"

    @property
    def is_broadcasting(self) -> bool:
        """Whether every consumer of the group gets every message."""
        return self.model == "broadcasting"

    @property
    def message_model(self) -> MessageModel:
        return MessageModel.BROADCASTING if self.is_broadcasting else MessageModel.CLUSTERING

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        if self.consume_from == "first":
            return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        if self.consume_from == "last":
            return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

    @property
    def consume_timestamp_ms(self) -> int:
        """The time to begin at; half an hour ago if none is given, as in Java."""
        if isinstance(self.consume_from, datetime):
            return int(self.consume_from.timestamp() * 1000)
        return time.time_ns() // 1_000_000 - _HALF_AN_HOUR_MS

    @property
    def max_attempts(self) -> int:
        """The number of retries after which a message goes to the dead letters."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return UNLIMITED if self.orderly else DEFAULT_MAX_RECONSUME_TIMES

    def as_texts(self) -> dict[str, str]:
        """Every setting as text, for tools."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}


def split_consumer_keywords(keywords: ConsumerKeywords) -> tuple[ConsumerOptions, ClientSettings]:
    """The consumer's own options, and the common settings. TypeError names an unknown keyword."""
    return split_options(keywords, ConsumerOptions, "a push consumer")
