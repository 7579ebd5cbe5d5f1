"""Names of topics and groups in requests. A resource's namespace has no meaning to brokers: clients that use
namespaces of remoting write them into the name."""

from __future__ import annotations

from typing import Final

from kourou.protocol.names import is_system_group, is_system_topic, topic_problem, user_group_problem
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code, Resource

_MAX_NAMESPACE: Final = 255


def topic_name(topic: Resource) -> str:
    """The name of a topic. StatusError: it is none, or one that clients have no business with."""
    name = topic.name
    _check_namespace(topic, Code.ILLEGAL_TOPIC)
    if problem := topic_problem(name):
        raise StatusError(Code.ILLEGAL_TOPIC, problem)
    if is_system_topic(name):
        raise StatusError(Code.ILLEGAL_TOPIC, f"topic {name!r} belongs to RocketMQ; use one of your own")
    return name


def group_name(group: Resource) -> str:
    """The name of a consumer group. StatusError: it is none, or one that clients have no business with."""
    name = group.name
    _check_namespace(group, Code.ILLEGAL_CONSUMER_GROUP)
    if problem := user_group_problem(name):
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, problem)
    if is_system_group(name):
        raise StatusError(
            Code.ILLEGAL_CONSUMER_GROUP, f"group {name!r} belongs to RocketMQ; use one of your own"
        )
    return name


def _check_namespace(resource: Resource, code: Code) -> None:
    """It is sent back with each queue of a topic, so it must not be large."""
    if len(resource.resource_namespace) > _MAX_NAMESPACE:
        raise StatusError(code, f"resource_namespace has more than {_MAX_NAMESPACE} characters")
