"""Who may pull what: permissions of the broker, the group and the topic, and whether they are there.

A refusal for lack of permission says in the header whose it was (5.x), as code 16 alone does not.
Not here: subscriptions (pull_targets.py).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kourou.errors import RequestError
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.codes import PermName, ResponseCode
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_READ: Final = PermName.READ.value


class ForbiddenType(enum.IntEnum):
    """Whose permission is missing: `forbiddenType` of the answer to a pull."""

    BROKER_FORBIDDEN = 1
    GROUP_FORBIDDEN = 2
    TOPIC_FORBIDDEN = 3
    BROADCASTING_DISABLE_FORBIDDEN = 4
    SUBSCRIPTION_FORBIDDEN = 5


class PullForbiddenError(RequestError):
    """A pull that is refused with NO_PERMISSION."""

    def __init__(self, forbidden_type: ForbiddenType, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


def answer_forbidden(request: Request, refusal: PullForbiddenError) -> None:
    """Refuse a pull; no offsets go with it."""
    fields = {"forbiddenType": str(refusal.forbidden_type.value)}
    request.reply(fields, code=refusal.response_code, remark=refusal.remark)


def check_pull(
    services: BrokerServices, request: Request, header: PullMessageRequestHeader
) -> tuple[TopicConfig, SubscriptionGroupConfig]:
    """The topic and the group of a pull; PullForbiddenError or RequestError when it may not be."""
    if not services.config.broker_permission & _READ:
        raise PullForbiddenError(
            ForbiddenType.BROKER_FORBIDDEN, f"the broker[{services.address}] pulling message is forbidden"
        )
    group_config = _check_group(services, header)
    topic_config = services.topics.table.get(header.topic)
    if topic_config is None:
        raise RequestError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!"
        )
    if not topic_config.perm & _READ:
        raise PullForbiddenError(
            ForbiddenType.TOPIC_FORBIDDEN, f"the topic[{header.topic}] pulling message is forbidden"
        )
    if not 0 <= header.queue_id < topic_config.read_queue_nums:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}] "
            f"consumer:[{request.connection.remote_address}]",
        )
    return topic_config, group_config


def _check_group(services: BrokerServices, header: PullMessageRequestHeader) -> SubscriptionGroupConfig:
    group = header.consumer_group
    group_config = services.groups.find(group)
    if group_config is None:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist"
        )
    if not group_config.consume_enable:
        raise PullForbiddenError(ForbiddenType.GROUP_FORBIDDEN, f"subscription group no permission, {group}")
    # Apache asks this of consumers with a heartbeat only; who forbids a group to read means all of it.
    if services.groups.forbidden(group, header.topic) & _READ:
        raise PullForbiddenError(
            ForbiddenType.SUBSCRIPTION_FORBIDDEN,
            f"the consumer group[{group}] is forbidden for topic[{header.topic}]",
        )
    return group_config
