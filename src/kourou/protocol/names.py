"""Names of topics and groups: what is allowed, which are RocketMQ's own, how some are built.

A `…_problem` function returns why a name is refused, or None, so that a client can raise and
a broker can answer with the same words. Not here: permissions (codes.py), who may use what.
"""

from __future__ import annotations

import re
from typing import Final

TOPIC_MAX_LENGTH: Final = 127
# `%RETRY%` and `%DLQ%` topics hold a whole group name, for POP also a topic; 5.x allows for that.
RETRY_OR_DLQ_TOPIC_MAX_LENGTH: Final = 255
# Room for the `%RETRY%` of its retry topic within 127 characters.
GROUP_MAX_LENGTH: Final = 120

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
REPLY_TOPIC_POSTFIX: Final = "_REPLY_TOPIC"
LMQ_PREFIX: Final = "%LMQ%"
NAMESPACE_SEPARATOR: Final = "%"

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
RMQ_SYS_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
RMQ_SYS_BENCHMARK_TOPIC: Final = "BenchmarkTest"
RMQ_SYS_TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
RMQ_SYS_TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
RMQ_SYS_SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
RMQ_SYS_OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
RMQ_SYS_ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
PRODUCERS_TOPIC: Final = "rmq_sys_kourou_producers"
"""Openings of idempotent producers."""
ATOMIC_TOPIC: Final = "rmq_sys_kourou_atomic"
"""The journal of atomic publishes: staged parts and decisions."""
ORDER_TOPIC: Final = "rmq_sys_kourou_order"
"""The journal of orderly POP: what was handed out, and how far groups are."""
JOURNAL_TOPICS: Final = frozenset({PRODUCERS_TOPIC, ATOMIC_TOPIC, ORDER_TOPIC})
"""Topics of a broker's own that have no configuration: clients neither send to them nor read them."""
REVIVE_LOG_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
SYNC_BROKER_MEMBER_GROUP_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

STORE_FENCED: Final = "storeFenced"
"""Key of a broker's runtime information, only present if the store rejects messages: the reason."""
COMPILED_KERNEL: Final = "compiledKernel"
"""Key of a broker's runtime information: `in use`, or `not in use` and why."""
COMPILED_KERNEL_CURE: Final = "compiledKernelCure"
"""Key of a broker's runtime information, only there if the kernel is not in use: how to get it."""

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_BENCHMARK_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_TRACE_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
        RMQ_SYS_ROCKSDB_OFFSET_TOPIC,
    }
)
NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
        # Unlike Apache: what is written there is delivered to the topic that its properties name.
        TIMER_TOPIC,
        *JOURNAL_TOPICS,
    }
)

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP: Final = "SCHEDULE_CONSUMER"
FILTERSRV_CONSUMER_GROUP: Final = "FILTERSRV_CONSUMER"
MONITOR_CONSUMER_GROUP: Final = "__MONITOR_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
SELF_TEST_PRODUCER_GROUP: Final = "SELF_TEST_P_GROUP"
SELF_TEST_CONSUMER_GROUP: Final = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP: Final = "CID_ONS-HTTP-PROXY"
CID_ONSAPI_PERMISSION_GROUP: Final = "CID_ONSAPI_PERMISSION"
CID_ONSAPI_OWNER_GROUP: Final = "CID_ONSAPI_OWNER"
CID_ONSAPI_PULL_GROUP: Final = "CID_ONSAPI_PULL"
CID_RMQ_SYS_PREFIX: Final = "CID_RMQ_SYS_"
CID_SYS_RMQ_TRANS: Final = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"

SYSTEM_GROUPS: Final = frozenset(
    {
        DEFAULT_PRODUCER_GROUP,
        DEFAULT_CONSUMER_GROUP,
        TOOLS_CONSUMER_GROUP,
        SCHEDULE_CONSUMER_GROUP,
        FILTERSRV_CONSUMER_GROUP,
        MONITOR_CONSUMER_GROUP,
        CLIENT_INNER_PRODUCER_GROUP,
        SELF_TEST_PRODUCER_GROUP,
        SELF_TEST_CONSUMER_GROUP,
        ONS_HTTP_PROXY_GROUP,
        CID_ONSAPI_PERMISSION_GROUP,
        CID_ONSAPI_OWNER_GROUP,
        CID_ONSAPI_PULL_GROUP,
        CID_SYS_RMQ_TRANS,
        REVIVE_GROUP,
    }
)

_ILLEGAL_CHARACTER: Final = re.compile(r"[^%|a-zA-Z0-9_-]")
_USUAL_TOPIC: Final = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{TOPIC_MAX_LENGTH}}}").fullmatch


def topic_problem(topic: str) -> str | None:
    """Why `topic` is not a valid topic name; None if it is."""
    if _USUAL_TOPIC(topic):  # called for every message
        return None
    prefixed = is_retry_topic(topic) or is_dlq_topic(topic)
    return _name_problem("topic", topic, RETRY_OR_DLQ_TOPIC_MAX_LENGTH if prefixed else TOPIC_MAX_LENGTH)


def group_problem(group: str) -> str | None:
    """Why `group` is not a valid group name; None if it is."""
    return _name_problem("group", group, GROUP_MAX_LENGTH)


def _name_problem(kind: str, name: str, max_length: int) -> str | None:
    if not name.strip():
        return f"the {kind} is blank"
    if illegal := _ILLEGAL_CHARACTER.search(name):
        return (
            f"{kind} {_shown(name)} contains {illegal[0]!r}; allowed are letters a-z and A-Z, digits, _ - % |"
        )
    if len(name) > max_length:
        return f"{kind} {_shown(name)} has {len(name)} characters; at most {max_length} are allowed"
    return None


def _shown(name: str) -> str:
    # A name from the wire may be megabytes long; an error message is for reading.
    return repr(name if len(name) <= 300 else name[:300] + "…")


def send_topic_problem(topic: str) -> str | None:
    """Why a producer may not send to `topic`, or None."""
    if is_written_by_brokers(topic):
        return f"topic {topic!r} is written by brokers only; send to another topic"
    return topic_problem(topic)


def is_written_by_brokers(topic: str) -> bool:
    """Whether clients may not send to `topic`.

    Apache lets them send to the revive topic: a check point there has messages of any topic put into a retry
    topic of any group."""
    return topic in NOT_ALLOWED_SEND_TOPICS or topic.startswith(REVIVE_LOG_TOPIC_PREFIX)


def user_group_problem(group: str) -> str | None:
    """Why a client may not work under `group`, or None."""
    if group in (DEFAULT_PRODUCER_GROUP, DEFAULT_CONSUMER_GROUP):
        return f"group {group!r} is RocketMQ's placeholder for none; choose a name of your own"
    return group_problem(group)


def is_system_topic(topic: str) -> bool:
    """RocketMQ's own by name. Topics named like a cluster or broker are known to the broker only."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_inner_topic(topic: str) -> bool:
    """Not a user's topic: RocketMQ's own, or a retry, dead-letter or light topic."""
    return is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic) or is_lmq(topic)


def is_system_group(group: str) -> bool:
    """RocketMQ's own: a predefined group, or one with the system prefix."""
    return group in SYSTEM_GROUPS or group.startswith(CID_RMQ_SYS_PREFIX)


def retry_topic(group: str) -> str:
    """The topic from which failed messages of `group` are delivered again."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic of the dead letters of `group`."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic of replies to requests in `cluster`."""
    return cluster + REPLY_TOPIC_POSTFIX


def is_retry_topic(topic: str) -> bool:
    """Whether `topic` is some group's retry topic."""
    return topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether `topic` holds some group's dead letters."""
    return topic.startswith(DLQ_GROUP_TOPIC_PREFIX)


def is_lmq(queue_name: str) -> bool:
    """Whether this is the name of a light message queue."""
    return queue_name.startswith(LMQ_PREFIX)


def wrap_namespace(namespace: str, resource: str) -> str:
    """`resource`, a topic or group, inside `namespace`: `ns%topic`, `%RETRY%ns%group`.

    System names have no namespace, and what is inside already stays as it is.
    """
    if not namespace or not resource or _is_system_resource(resource):
        return resource
    prefix, name = _split_prefix(resource)
    inside = namespace + NAMESPACE_SEPARATOR
    return resource if name.startswith(inside) else prefix + inside + name


def without_namespace(resource: str, namespace: str | None = None) -> str:
    """`resource` outside its namespace; with `namespace` given, only where it is in that one."""
    if _is_system_resource(resource):
        return resource
    prefix, name = _split_prefix(resource)
    found, separator, bare = name.partition(NAMESPACE_SEPARATOR)
    if not found or not separator or namespace not in (None, found):
        return resource
    return prefix + bare


def namespace_of(resource: str) -> str:
    """The namespace that `resource` is in; empty for none."""
    if _is_system_resource(resource):
        return ""
    namespace, separator, _ = _split_prefix(resource)[1].partition(NAMESPACE_SEPARATOR)
    return namespace if separator else ""


def _is_system_resource(resource: str) -> bool:
    # Predefined groups without the prefix do take a namespace: Java's clients wrap them.
    return is_system_topic(resource) or resource.startswith(CID_RMQ_SYS_PREFIX)


def _split_prefix(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource
