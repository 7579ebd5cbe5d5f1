"""What a consumer tells `mqadmin` and the console of itself (307)."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Final

from kourou.client.core.subscriptions import Subscriptions
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consumer_offsets import ConsumerOffsets
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.consumer_stats import StatsTable
from kourou.protocol.bodies import ConsumerRunningInfo, ConsumeType, MessageQueue
from kourou.protocol.versions import CURRENT_VERSION, version_desc

# Java's names of our settings, where tools may look for them.
_JAVA_NAMES: Final = {
    "model": "messageModel",
    "consume_from": "consumeFromWhere",
    "strategy": "allocateMessageQueueStrategy",
    "concurrency": "consumeThreadMax",
    "batch_size": "consumeMessageBatchMaxSize",
    "pull_batch_size": "pullBatchSize",
    "pull_interval_ms": "pullInterval",
    "max_reconsume_times": "maxReconsumeTimes",
    "consume_timeout_ms": "consumeTimeout",
    "suspend_ms": "suspendCurrentQueueTimeMillis",
    "pull_threshold_messages": "pullThresholdForQueue",
    "pull_threshold_bytes": "pullThresholdSizeForQueue",
    "max_span": "consumeConcurrentlyMaxSpan",
}


def running_info(
    *,
    group: str,
    options: ConsumerOptions,
    namesrv_addresses: tuple[str, ...],
    started_ms: int,
    subscriptions: Subscriptions,
    assigned: dict[MessageQueue, AssignedQueue],
    offsets: ConsumerOffsets,
    stats: StatsTable,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """Everything that tools show; mqadmin fails without some of the PROP_ entries."""
    settings = {_JAVA_NAMES.get(name, name): text for name, text in options.as_texts().items()}
    settings |= {
        "consumerGroup": group,
        "messageModel": options.message_model.value,
        "consumeFromWhere": options.consume_from_where.value,
        "consumeTimestamp": str(options.consume_timestamp_ms),
        "allocateMessageQueueStrategy": options.strategy.name,
        "consumeThreadMin": str(options.concurrency),
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in namesrv_addresses),
        "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
        "PROP_CLIENT_VERSION": version_desc(CURRENT_VERSION),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CONSUMEORDERLY": str(options.orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
    }
    return ConsumerRunningInfo(
        properties=settings,
        subscription_set=subscriptions.data(),
        mq_table={
            queue: each.describe(commit_offset=-1 if (known := offsets.known(queue)) is None else known)
            for queue, each in sorted(assigned.items())
        },
        status_table={topic: stats.status(topic) for topic in subscriptions.topics},
        jstack=_stacks() if with_stacks else None,
    )


def _stacks() -> str:
    """Where every thread is, as Java's `jstack` shows it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
