"""LitePullOptions: the options of a lite pull consumer besides the common ones; defaults are Java's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.argument_types import check_field_types
from kourou.client.core.settings import ClientOptions, ClientSettings, split_options
from kourou.client.core.strategies import AllocateAveragely, AllocateStrategy
from kourou.client.push.consumer_options import ConsumeFrom, ConsumerOptions, Model

_AT_LEAST: Final = {
    **dict.fromkeys(("pull_batch_size", "pull_threshold_all", "pull_threshold_messages", "max_span"), 1),
    **dict.fromkeys(("pull_threshold_bytes", "auto_commit_interval_ms", "topic_check_interval_ms"), 1),
    **dict.fromkeys(("suspend_ms", "poll_timeout_ms"), 0),
}


class LitePullKeywords(ClientOptions, total=False):
    """The keyword arguments of a lite pull consumer; see LitePullOptions for what they mean."""

    model: Model
    consume_from: ConsumeFrom
    strategy: AllocateStrategy
    auto_commit: bool
    auto_commit_interval_ms: int
    poll_timeout_ms: int
    pull_batch_size: int
    pull_threshold_all: int
    pull_threshold_messages: int
    pull_threshold_bytes: int
    max_span: int
    suspend_ms: int
    suspended_pull_timeout_ms: int
    topic_check_interval_ms: int
    rebalance_interval_ms: int
    offset_store_dir: str | Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullOptions:
    """How a lite pull consumer works."""

    model: Model = "clustering"
    """`clustering`: the group shares the messages; `broadcasting`: each consumer gets all of them."""
    consume_from: ConsumeFrom = "last"
    """Where a group without an offset begins."""
    strategy: AllocateStrategy = AllocateAveragely()
    """How queues are assigned within a group: a strategy of `kourou.client`."""
    auto_commit: bool = True
    """Whether polled messages are committed automatically, once a later poll has begun."""
    auto_commit_interval_ms: int = 5_000
    """How often they are committed."""
    poll_timeout_ms: int = 5_000
    """The default timeout of `poll`."""
    pull_batch_size: int = 10
    """Maximum number of messages of a pull, and so of a poll."""
    pull_threshold_all: int = 10_000
    """Pulled, unpolled messages of all queues at which pulling stops (`pullThresholdForAll`)."""
    pull_threshold_messages: int = 1_000
    """The same for each queue (`pullThresholdForQueue`)."""
    pull_threshold_bytes: int = 100 * 1024 * 1024
    """The same in bytes (`pullThresholdSizeForQueue`, there in MiB)."""
    max_span: int = 2_000
    """Limit of the span of pulled, unpolled offsets, per queue (`consumeMaxSpan`)."""
    suspend_ms: int = 20_000
    """How long a broker holds a pull until there are messages (`brokerSuspendMaxTimeMillis`)."""
    suspended_pull_timeout_ms: int = 30_000
    """Timeout of such a pull (`consumerTimeoutMillisWhenSuspend`)."""
    topic_check_interval_ms: int = 30_000
    """How often topics with a listener are checked (`topicMetadataCheckIntervalMillis`)."""
    rebalance_interval_ms: int = 20_000
    """How often queues are reassigned, besides when the group changes."""
    offset_store_dir: str | Path | None = None
    """Where a broadcasting consumer stores its offsets; None: `~/.rocketmq_offsets`."""

    def __post_init__(self) -> None:
        check_field_types(self)
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.suspended_pull_timeout_ms <= self.suspend_ms:
            raise ValueError("suspended_pull_timeout_ms must be longer than suspend_ms")
        self.shared()

    def shared(self) -> ConsumerOptions:
        """The options that rebalancing needs."""
        return ConsumerOptions(
            model=self.model,
            consume_from=self.consume_from,
            strategy=self.strategy,
            pull_batch_size=self.pull_batch_size,
            pull_threshold_messages=self.pull_threshold_messages,
            pull_threshold_bytes=self.pull_threshold_bytes,
            max_span=self.max_span,
            persist_interval_ms=self.auto_commit_interval_ms,
            rebalance_interval_ms=self.rebalance_interval_ms,
            offset_store_dir=self.offset_store_dir,
        )


def split_lite_keywords(keywords: LitePullKeywords) -> tuple[LitePullOptions, ClientSettings]:
    """The consumer's own options, and the common settings. TypeError names an unknown keyword."""
    return split_options(keywords, LitePullOptions, "a lite pull consumer")
