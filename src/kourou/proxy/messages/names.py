"""Names of topics and groups in requests. A resource's namespace has no meaning to brokers: clients that use
namespaces of remoting write them into the name."""

from __future__ import annotations

from kourou.protocol.names import is_system_group, is_system_topic, topic_problem, user_group_problem
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code, Resource


def topic_name(topic: Resource) -> str:
    """The name of a topic. StatusError: it is none, or one that clients have no business with."""
    name = topic.name
    if problem := topic_problem(name):
        raise StatusError(Code.ILLEGAL_TOPIC, problem)
    if is_system_topic(name):
        raise StatusError(Code.ILLEGAL_TOPIC, f"topic {name!r} belongs to RocketMQ; use one of your own")
    return name


def group_name(group: Resource) -> str:
    """The name of a consumer group. StatusError: it is none, or one that clients have no business with."""
    name = group.name
    if problem := user_group_problem(name):
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, problem)
    if is_system_group(name):
        raise StatusError(
            Code.ILLEGAL_CONSUMER_GROUP, f"group {name!r} belongs to RocketMQ; use one of your own"
        )
    return name
