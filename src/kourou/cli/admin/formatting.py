"""How objects and times are printed: in the formats of Apache's tools, which scripts parse.

Maps are printed sorted by key; Java prints them in the order of a hash table. Not here: tables (screen.py),
the text of a consumer's running info (connection_commands.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from kourou.admin.messages.message_view import MessageView
from kourou.cli.problems import UsageError
from kourou.client.producer.send_result import SendResult
from kourou.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeQueueData,
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    MessageQueue,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)

_PERM_LETTERS: Final = ((4, "R"), (2, "W"), (1, "X"))
_TIME_FORMATS: Final = ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d %H:%M:%S,%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d")
_WHOLE_NUMBER: Final = re.compile(r"-?\d+")


# -- times -------------------------------------------------------------------------------------------


def human_time(timestamp_ms: int) -> str:
    """`yyyy-MM-dd HH:mm:ss,SSS` in the local zone."""
    return f"{format_time(timestamp_ms)},{timestamp_ms % 1000:03d}"


def format_time(timestamp_ms: int) -> str:
    """`yyyy-MM-dd HH:mm:ss` in the local zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp_ms // 1000))


def parse_time(text: str) -> int:
    """Milliseconds from digits or `yyyy-MM-dd#HH:mm:ss:SSS` in the local time zone; else UsageError."""
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    for form in _TIME_FORMATS:
        try:
            moment = datetime.strptime(text, form)
            return round(moment.timestamp() * 1000)
        except (ValueError, OverflowError):
            continue
    raise UsageError(f"{text}: not a time; give milliseconds or yyyy-MM-dd#HH:mm:ss:SSS")


# -- parts of objects --------------------------------------------------------------------------------


def cut(text: str, length: int) -> str:
    """At most the first `length` characters, for a column."""
    return text[:length]


def perm(bits: int) -> str:
    """Permissions as three letters, such as `RW-`."""
    return "".join(letter if bits & bit else "-" for bit, letter in _PERM_LETTERS)


def truth(value: bool) -> str:
    """Java's spelling: `true` or `false`."""
    return "true" if value else "false"


def or_null(value: object) -> str:
    """The value as text; `null` for None."""
    return "null" if value is None else str(value)


def text_map(values: Mapping[str, object]) -> str:
    """A map as Java prints it, `{k=v, k2=v2}`, sorted."""
    return "{" + ", ".join(f"{name}={values[name]}" for name in sorted(values)) + "}"


def signed_bytes(body: bytes) -> str:
    """Bytes as Java prints them, signed: `[1, -2, 3]`."""
    return str(list(memoryview(body).cast("b")))


def _listed(values: Sequence[object]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


# -- objects -----------------------------------------------------------------------------------------


def java_message_queue(queue: MessageQueue) -> str:
    """Java's `MessageQueue.toString`."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def topic_config(config: TopicConfig, *, is_v4: bool = False) -> str:
    """Java's `TopicConfig.toString`."""
    attributes = "" if is_v4 else f", attributes={text_map(config.attributes)}"
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={truth(config.order)}{attributes}]"
    )


def group_config(config: SubscriptionGroupConfig, *, is_v4: bool = False) -> str:
    """Java's `SubscriptionGroupConfig.toString`."""
    enabled = (
        f"groupName={config.group_name}, consumeEnable={truth(config.consume_enable)}, "
        f"consumeFromMinEnable={truth(config.consume_from_min_enable)}, "
        f"consumeBroadcastEnable={truth(config.consume_broadcast_enable)}"
    )
    retries = f"retryQueueNums={config.retry_queue_nums}, retryMaxTimes={config.retry_max_times}"
    brokers = (
        f"brokerId={config.broker_id}, "
        f"whichBrokerWhenConsumeSlowly={config.which_broker_when_consume_slowly}, "
        f"notifyConsumerIdsChangedEnable={truth(config.notify_consumer_ids_changed_enable)}"
    )
    if is_v4:
        return f"SubscriptionGroupConfig [{enabled}, {retries}, {brokers}]"
    fixed = config.subscription_data_set
    subscriptions = None if fixed is None else _listed([_simple_subscription(one) for one in fixed])
    return (
        f"SubscriptionGroupConfig{{{enabled}, consumeMessageOrderly={truth(config.consume_message_orderly)}, "
        f"{retries}, groupRetryPolicy={retry_policy(config.group_retry_policy)}, {brokers}, "
        f"groupSysFlag={config.group_sys_flag}, consumeTimeoutMinute={config.consume_timeout_minute}, "
        f"subscriptionDataSet={or_null(subscriptions)}, attributes={text_map(config.attributes)}}}"
    )


def retry_policy(policy: GroupRetryPolicy) -> str:
    """Java's `GroupRetryPolicy.toString`."""
    return (
        f"GroupRetryPolicy{{type={policy.type}, "
        f"exponentialRetryPolicy={_exponential(policy.exponential_retry_policy)}, "
        f"customizedRetryPolicy={_customized(policy.customized_retry_policy)}}}"
    )


def _exponential(policy: ExponentialRetryPolicy | None) -> str:
    if policy is None:
        return "null"
    limits = f"initial={policy.initial}, max={policy.max}"
    return f"ExponentialRetryPolicy{{{limits}, multiplier={policy.multiplier}}}"


def _customized(policy: CustomizedRetryPolicy | None) -> str:
    return "null" if policy is None else f"CustomizedRetryPolicy{{next={_listed(policy.next)}}}"


def _simple_subscription(subscription: SimpleSubscriptionData) -> str:
    return (
        f"SimpleSubscriptionData{{topic='{subscription.topic}', "
        f"expressionType='{subscription.expression_type}', expression='{subscription.expression}', "
        f"version={subscription.version}}}"
    )


def send_result(result: SendResult, *, is_v4: bool = False) -> str:
    """Java's `SendResult.toString`."""
    handle = "" if is_v4 else f", recallHandle={or_null(result.recall_handle)}"
    return (
        f"SendResult [sendStatus={result.status.name}, msgId={result.msg_id}, "
        f"offsetMsgId={result.offset_msg_id}, messageQueue={java_message_queue(result.queue)}, "
        f"queueOffset={result.queue_offset}{handle}]"
    )


def message_ext(message: MessageView) -> str:
    """Java's `MessageExt.toString`. Its `msgId` is the offset id."""
    return (
        f"MessageExt [brokerName={message.broker_name or 'null'}, queueId={message.queue_id}, "
        f"storeSize={message.store_size}, queueOffset={message.queue_offset}, sysFlag={message.sys_flag}, "
        f"bornTimestamp={message.born_timestamp}, bornHost=/{message.born_host}, "
        f"storeTimestamp={message.store_timestamp}, storeHost=/{message.store_host}, "
        f"msgId={message.offset_msg_id}, commitLogOffset={message.phy_offset}, "
        f"bodyCRC={message.body_crc}, reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, "
        f"properties={text_map(message.properties)}, body={signed_bytes(message.body)}, "
        f"transactionId='{or_null(message.transaction_id)}'}}]"
    )


def message_track(group: str, track_type: str, exception_desc: str | None) -> str:
    """Java's `MessageTrack.toString`."""
    return (
        f"MessageTrack [consumerGroup={group}, trackType={track_type}, "
        f"exceptionDesc={or_null(exception_desc)}]"
    )


def direct_result(result: ConsumeMessageDirectlyResult) -> str:
    """Java's `ConsumeMessageDirectlyResult.toString`."""
    return (
        f"ConsumeMessageDirectlyResult [order={truth(result.order)}, "
        f"autoCommit={truth(result.auto_commit)}, consumeResult={or_null(result.consume_result)}, "
        f"remark={or_null(result.remark)}, spentTimeMills={result.spent_time_mills}]"
    )


def consume_queue_data(data: ConsumeQueueData) -> str:
    """Java's `ConsumeQueueData.toString`."""
    return (
        f"ConsumeQueueData{{physicOffset={data.physic_offset}, physicSize={data.physic_size}, "
        f"tagsCode={data.tags_code}, extendDataJson='{or_null(data.extend_data_json)}', "
        f"bitMap='{or_null(data.bit_map)}', eval={truth(data.eval)}, msg='{or_null(data.msg)}'}}"
    )
