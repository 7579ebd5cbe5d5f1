"""SendTargets: the topics that may be sent to, and what else a send is checked for.

A topic is checked once; the decision is kept until its configuration or the ruling of the admission changes.
Not here: what is done with a message that may be sent (send_message_processor.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kourou.broker.admission import Admission, Ruling
from kourou.broker.connection_state import record_born_host
from kourou.broker.groups.rebalance_lock import RebalanceLockManager
from kourou.broker.hooks import BrokerHooks, SendContext
from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.broker.storage.inner_message import InnerMessage
from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
from kourou.broker.tables.topics import TopicConfigManager
from kourou.errors import RequestError
from kourou.protocol.bodies.topics import TopicConfig, TopicFilterType
from kourou.protocol.codes import MessageSysFlag, PermName, ResponseCode
from kourou.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from kourou.protocol.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX, is_retry_topic
from kourou.protocol.properties import MessageConst, get_property, properties_from_bytes, set_property
from kourou.protocol.versions import V3_4_9
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.stats.event_counters import EventCounters

SendHeader: TypeAlias = SendMessageRequestHeader | SendMessageRequestHeaderV2

_MULTI_TAGS: Final = MessageSysFlag.MULTI_TAGS.value
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)


class SendTarget(NamedTuple):
    """A topic that may be sent to, as long as its configuration and the ruling are these very objects.

    `needs_slow_path`: each of its messages is looked at, since it is a retry topic or a check has to see
    them. The compiled kernel reads the fields by position.
    """

    topic_config: TopicConfig
    ruling: Ruling
    queue_nums: int
    sys_flag: int
    needs_slow_path: bool


class SendTargets:
    """The targets of one broker, by topic: `table`; and what else all sends are checked against."""

    def __init__(
        self,
        *,
        admission: Admission,
        hooks: BrokerHooks,
        commit_cycle: CommitCycle,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        locks: RebalanceLockManager,
        events: EventCounters,
    ) -> None:
        self._events = events
        self.admission = admission
        self.hooks = hooks
        self.commit_cycle = commit_cycle
        self.topic_configs = topics.table
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self.table: dict[str, SendTarget] = {}

    def check_topic(self, request: Request, header: SendHeader) -> SendTarget:
        """What need not be checked again for each message, until a configuration or the ruling changes."""
        admission = self.admission
        admission.check_accepting()
        topic_config = self._topics.table.get(header.topic) or self._create_topic(request, header)
        admission.check_send(topic_config)
        target = SendTarget(
            topic_config,
            admission.ruling,
            max(topic_config.read_queue_nums, topic_config.write_queue_nums),
            _MULTI_TAGS if topic_config.topic_filter_type == TopicFilterType.MULTI_TAG else 0,
            is_retry_topic(header.topic) or admission.sees_messages_of(header.topic),
        )
        if admission.is_writable:
            self.table[header.topic] = target
        return target

    def _create_topic(self, request: Request, header: SendHeader) -> TopicConfig:
        """The topic of a first send, made if that is allowed."""
        topics = self._topics
        topics.check_topic_name(header.topic)
        self.admission.check_topic_name(header.topic)
        created = topics.create_in_send(
            header.topic,
            header.default_topic,
            request.connection.remote_address,
            header.default_topic_queue_nums,
            0,
        )
        if created is None and is_retry_topic(header.topic):
            created = topics.create_in_send_back(header.topic, 1, _READ_WRITE)
        if created is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!"
            )
        return created

    def check_message(
        self, request: Request, header: SendHeader, queue_id: int, properties: str
    ) -> tuple[str, int, str]:
        """Where a message of a slow-path topic goes, and its properties; RequestError: a check rejects it."""
        topic = header.topic
        if is_retry_topic(topic) and self._is_given_up(request, header):
            topic, queue_id, properties = self._dead_letter(topic, properties)
        self.admission.check_message(send_context(request, header, properties))
        return topic, queue_id, properties

    def _is_given_up(self, request: Request, header: SendHeader) -> bool:
        """Whether a message to a retry topic was tried often enough. A group that consumes in order
        tries again by itself: what it sends is what it has given up on."""
        group = header.topic[len(RETRY_GROUP_TOPIC_PREFIX) :]
        group_config = self._groups.find(group)
        if group_config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}, create it with updateSubGroup",
            )
        max_times = group_config.retry_max_times
        if header.max_reconsume_times is not None and request.version >= V3_4_9:
            max_times = header.max_reconsume_times
        return header.reconsume_times > max_times or not self._locks.is_lock_all_expired(group)

    def _dead_letter(self, retry_topic: str, properties: str) -> tuple[str, int, str]:
        """Topic, queue and properties of a message that is tried no more."""
        group = retry_topic[len(RETRY_GROUP_TOPIC_PREFIX) :]
        topic = DLQ_GROUP_TOPIC_PREFIX + group
        first_topic = get_property(properties, MessageConst.PROPERTY_RETRY_TOPIC) or retry_topic
        self._events.dead_letter(group, first_topic)
        self._topics.create_in_send_back(topic, 1, _READ_WRITE)
        return topic, 0, set_property(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL, "-1")


def inner_message(
    request: Request, header: SendHeader, target: SendTarget, topic: str, queue_id: int, stored: bytes
) -> InnerMessage:
    """What was sent, to be put by the broker itself; `stored` are its properties."""
    connection = request.connection
    return InnerMessage(
        topic,
        queue_id,
        request.body,
        properties_from_bytes(stored),
        header.born_timestamp,
        connection.state.born_host or record_born_host(connection),
        header.sys_flag | target.sys_flag,
        header.flag,
        header.reconsume_times,
    )


def send_context(request: Request, header: SendHeader, properties: str) -> SendContext:
    """A send as hooks and checks see it."""
    return SendContext(
        header.topic,
        header.queue_id,
        header.producer_group,
        request.body,
        properties,
        request.connection.remote_address,
    )
