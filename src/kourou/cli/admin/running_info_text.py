"""The text of what a running consumer says of itself, as Apache's tools write it to a file."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from kourou.admin.running_info import RunningInfo
from kourou.cli.admin.formatting import truth
from kourou.protocol.bodies import ConsumeStatus, MessageQueue, PopProcessQueueInfo, ProcessQueueInfo


def running_info_text(info: RunningInfo, *, is_v4: bool = False) -> str:
    """All sections, with two empty lines between them. RocketMQ 4.9 has fewer."""
    sections = [
        ["#Consumer Properties#", *_pairs(info.properties)],
        [
            "#Consumer Subscription#",
            *(
                f"{index:03d} Topic: {one.topic:<40} ClassFilter: {truth(one.class_filter_mode):<8} "
                f"SubExpression: {one.sub_string}"
                for index, one in enumerate(info.subscriptions, 1)
            ),
        ],
        [
            "#Consumer Offset#",
            _head("#Consumer Offset"),
            *(_row(32, running.queue, running.info.commit_offset) for running in info.queues),
        ],
        [
            "#Consumer MQ Detail#",
            _head("#ProcessQueueInfo"),
            *(_row(64, running.queue, _process_queue(running.info)) for running in info.queues),
        ],
    ]
    if not is_v4:
        sections.append(
            [
                "#Consumer Pop Detail#",
                _head("#ProcessQueueInfo", 32),
                *(_row(32, popped.queue, _pop_queue(popped.info)) for popped in info.pop_queues),
            ]
        )
    sections.append(["#Consumer RT&TPS#", *_rates(info.status)])
    if not is_v4:
        sections.append(["#User Consume Info#", *_pairs(info.user_consumer_info)])
    if info.jstack is not None:
        sections.append(["#Consumer jstack#", info.jstack])
    return "\n\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _pairs(values: Mapping[str, str]) -> Iterable[str]:
    return (f"{name:<40}: {values[name]}" for name in sorted(values))


def _head(last: str, topic_width: int = 64) -> str:
    return f"{'#Topic':<{topic_width}}  {'#Broker Name':<32}  {'#QID':<4}  {last:<20}"


def _row(topic_width: int, queue: MessageQueue, last: object) -> str:
    return f"{queue.topic:<{topic_width}}  {queue.broker_name:<32}  {queue.queue_id:<4}  {last!s:<20}"


def _rates(status: Mapping[str, ConsumeStatus]) -> Iterable[str]:
    yield (
        f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} {'#ConsumeOK TPS':>14} "
        f"{'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}"
    )
    for topic, of_topic in status.items():
        yield (
            f"{topic:<32}  {of_topic.pull_rt:>14.2f} {of_topic.pull_tps:>14.2f} "
            f"{of_topic.consume_rt:>14.2f} {of_topic.consume_ok_tps:>14.2f} "
            f"{of_topic.consume_failed_tps:>18.2f} {of_topic.consume_failed_msgs:>25}"
        )


def _process_queue(info: ProcessQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={info.commit_offset}, "
        f"cachedMsgMinOffset={info.cached_msg_min_offset}, cachedMsgMaxOffset={info.cached_msg_max_offset}, "
        f"cachedMsgCount={info.cached_msg_count}, cachedMsgSizeInMiB={info.cached_msg_size_in_mib}, "
        f"transactionMsgMinOffset={info.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={info.transaction_msg_max_offset}, "
        f"transactionMsgCount={info.transaction_msg_count}, locked={truth(info.locked)}, "
        f"tryUnlockTimes={info.try_unlock_times}, lastLockTimestamp={_digits(info.last_lock_timestamp)}, "
        f"droped={truth(info.dropped)}, lastPullTimestamp={_digits(info.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={_digits(info.last_consume_timestamp)}]"
    )


def _pop_queue(info: PopProcessQueueInfo) -> str:
    return (
        f"PopProcessQueueInfo [waitAckCount:{info.wait_ack_count}, droped:{truth(info.dropped)}, "
        f"lastPopTimestamp:{info.last_pop_timestamp}]"
    )


def _digits(timestamp_ms: int) -> str:
    """`yyyyMMddHHmmssSSS` in the local zone."""
    try:
        moment = time.localtime(timestamp_ms // 1000)
    except (OverflowError, OSError, ValueError):  # what a client says need not be a time
        return str(timestamp_ms)
    return f"{time.strftime('%Y%m%d%H%M%S', moment)}{timestamp_ms % 1000:03d}"
