"""ProducerOptions: the options of a producer besides the common ones; defaults are Java's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kourou.argument_types import check_field_types
from kourou.client.core.message_checks import DEFAULT_MAX_MESSAGE_BYTES, check_topic
from kourou.client.core.settings import ClientOptions, ClientSettings, split_options
from kourou.client.producer.producer_hooks import NO_HOOKS, ProducerHook
from kourou.protocol.compression import CompressionType
from kourou.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_TRACE_TOPIC
from kourou.protocol.producer_sequence import check_producer_name

_AT_LEAST: Final = {
    **dict.fromkeys(("send_timeout_ms", "max_message_bytes", "max_batch_bytes"), 1),
    **dict.fromkeys(("default_topic_queue_nums", "max_in_flight", "max_in_flight_bytes"), 1),
    **dict.fromkeys(("retry_times", "compress_over_bytes"), 0),
}

_MAX_LEVELS: Final = {CompressionType.ZLIB: 9, CompressionType.LZ4: 16, CompressionType.ZSTD: 22}


class ProducerKeywords(ClientOptions, total=False):
    """The keyword arguments of a producer; see ProducerOptions for what they mean."""

    idempotent: bool
    name: str | None
    explicit_sequences: bool
    send_timeout_ms: int
    attempt_timeout_ms: int | None
    retry_times: int
    retry_another_broker_when_not_store_ok: bool
    wait_for_topic_limit: bool
    compress_over_bytes: int
    compression: CompressionType
    compress_level: int
    max_message_bytes: int
    max_batch_bytes: int
    default_topic_queue_nums: int
    create_topic_key: str
    send_latency_fault: bool
    max_in_flight: int
    max_in_flight_bytes: int
    hooks: Sequence[ProducerHook]
    trace: bool
    trace_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer sends."""

    idempotent: bool = False
    """Whether brokers store a message once, however often it is repeated after a lost answer; at least once
    on brokers that are not Kourou's."""
    name: str | None = None
    """The name of an idempotent producer, which continues its sequences after a restart: up to 64 letters,
    digits, `.`, `_` and `-`. One program at a time may use it."""
    explicit_sequences: bool = False
    """Whether the application numbers the messages of a named producer itself, by `sequence`."""
    send_timeout_ms: int = 3_000
    """For a whole send: waiting for room, route, connection and response, all attempts together."""
    attempt_timeout_ms: int | None = None
    """For one attempt (`sendMsgMaxTimeoutPerRequest`); None: the remaining time of the send."""
    retry_times: int = 2
    """Retries after the first attempt (`retryTimesWhenSendFailed`)."""
    retry_another_broker_when_not_store_ok: bool = False
    """Whether to try another broker when one has stored the message, but not flushed or replicated it
    in time. The message may then be stored twice."""
    wait_for_topic_limit: bool = True
    """Whether a send waits, within its timeout, while the backlog of the topic is over its limit and no other
    broker takes it (`overflow.policy=reject`); False: it fails at once, with a TopicLimitError as its
    cause."""
    compress_over_bytes: int = 4 * 1024
    """Bodies of at least this size are compressed, if that makes them smaller; batches are not."""
    compression: CompressionType = CompressionType.ZLIB
    """A `CompressionType` of `kourou.client`; LZ4 and ZSTD need `kourou[compression]` and a 5.x consumer."""
    compress_level: int = 5
    """From 0 to 9 for ZLIB, 16 for LZ4, 22 for ZSTD."""
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    """A larger body is rejected before it is sent (`maxMessageSize`)."""
    max_batch_bytes: int = 1024 * 1024
    """Size limit of the batches of `send_many`."""
    default_topic_queue_nums: int = 4
    """Number of queues of a topic that the first send creates."""
    create_topic_key: str = AUTO_CREATE_TOPIC_KEY_TOPIC
    """The topic that brokers use as a template for new topics."""
    send_latency_fault: bool = False
    """Whether to avoid brokers that failed or were slow for a while (`sendLatencyFaultEnable`)."""
    max_in_flight: int = 10_000
    """Limit of sends in flight (`backPressureForAsyncSendNum`): then `send` waits, `send_nowait` raises."""
    max_in_flight_bytes: int = 100 * 1024 * 1024
    """Limit of their bodies in total (`backPressureForAsyncSendSize`)."""
    hooks: Sequence[ProducerHook] = NO_HOOKS
    """`ProducerHook`s of `kourou.client`, called around each send and at the end of transactions."""
    trace: bool = False
    """Whether to write Apache's trace of each send (`enableMsgTrace`)."""
    trace_topic: str = RMQ_SYS_TRACE_TOPIC
    """The topic of the trace (`traceTopic`)."""

    def __post_init__(self) -> None:
        if not isinstance(self.compression, CompressionType):
            raise TypeError(f"compression is a CompressionType (ZLIB, LZ4, ZSTD), not {self.compression!r}")
        check_field_types(self)
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        self._check_compression()
        if self.attempt_timeout_ms is not None and self.attempt_timeout_ms < 1:
            raise ValueError("attempt_timeout_ms is a number of milliseconds above 0, or None")
        check_topic(self.trace_topic)
        self._check_idempotence()

    @property
    def is_idempotent(self) -> bool:
        """Whether messages carry sequences."""
        return self.idempotent or self.name is not None

    def _check_idempotence(self) -> None:
        if self.name is not None:
            check_producer_name(self.name)
        elif self.explicit_sequences:
            raise ValueError("explicit_sequences needs a name, under which the sequences continue")
        if self.is_idempotent and self.retry_another_broker_when_not_store_ok:
            raise ValueError(
                "retry_another_broker_when_not_store_ok stores twice what an idempotent producer stores once"
            )

    def _check_compression(self) -> None:
        most = _MAX_LEVELS[self.compression]
        if not 0 <= self.compress_level <= most:
            name = self.compression.name
            raise ValueError(f"compress_level is {self.compress_level}; for {name} it is from 0 to {most}")


def split_keywords(keywords: ProducerKeywords) -> tuple[ProducerOptions, ClientSettings]:
    """The producer's own options, and the common settings. TypeError names an unknown keyword."""
    return split_options(keywords, ProducerOptions, "a producer")
