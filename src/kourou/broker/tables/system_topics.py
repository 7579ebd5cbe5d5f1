"""The topics that a broker makes for itself when it starts, if its table does not have them yet.

Not here: names that are RocketMQ's own without a topic behind them (protocol/names.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import PermName
from kourou.protocol.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    REVIVE_LOG_TOPIC_PREFIX,
    RMQ_SYS_BENCHMARK_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_SELF_TEST_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    SYNC_BROKER_MEMBER_GROUP_PREFIX,
    TIMER_TOPIC,
    reply_topic,
)

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

_INHERIT: Final = int(PermName.INHERIT)
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)
_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_QUEUES: Final = 16
# One for each delay level of Apache's default list.
_SCHEDULE_QUEUES: Final = 18


def default_topic_config(config: BrokerConfig) -> TopicConfig:
    """TBW102, which topics made by a send inherit from."""
    return _topic(AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, perm=_INHERIT | _READ_WRITE)


def system_topic_configs(config: BrokerConfig) -> list[TopicConfig]:
    """All of them, for a broker that is configured so."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    topics = [
        _topic(RMQ_SYS_SELF_TEST_TOPIC, 1),
        _topic(RMQ_SYS_BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        _topic(cluster, _CLUSTER_QUEUES, perm=_inherited(config.cluster_topic_enable)),
        _topic(broker, 1, perm=_inherited(config.broker_topic_enable)),
        _topic(RMQ_SYS_OFFSET_MOVED_EVENT, 1),
        _topic(RMQ_SYS_SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
        _topic(reply_topic(cluster), 1),
        _topic(REVIVE_LOG_TOPIC_PREFIX + cluster, config.revive_queue_num),
        _topic(SYNC_BROKER_MEMBER_GROUP_PREFIX + broker, 1, perm=_INHERIT),
        _topic(RMQ_SYS_TRANS_HALF_TOPIC, 1),
        _topic(RMQ_SYS_TRANS_OP_HALF_TOPIC, 1),
    ]
    if config.auto_create_topic_enable:
        topics.append(default_topic_config(config))
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name, 1))
    if config.timer_wheel_enable:
        topics.append(_topic(TIMER_TOPIC, 1))
    return topics


def _inherited(is_enabled: bool) -> int:
    return _INHERIT | _READ_WRITE if is_enabled else _INHERIT


def _topic(name: str, queue_nums: int, *, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)
