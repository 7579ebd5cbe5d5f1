"""TopicQueues: which broker groups serve a topic, and with how many queues.

RocketMQ's topicQueueTable holds a QueueData for each topic and broker name. Here one QueueEntry
is shared by all topics that have the same settings on a broker, so that a broker in a topic
costs a dict slot and a set slot, about 70 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kourou.protocol.bodies import QueueData, TopicQueueMappingInfo, encode_body
from kourou.protocol.codes import PermName

if TYPE_CHECKING:
    from kourou.namesrv.broker_group import BrokerGroup


class TopicSettings(Protocol):
    """What of a TopicConfig goes into routes."""

    @property
    def read_queue_nums(self) -> int: ...
    @property
    def write_queue_nums(self) -> int: ...
    @property
    def perm(self) -> int: ...
    @property
    def topic_sys_flag(self) -> int: ...


QueueKey = tuple[int, int, int, int]  # readQueueNums, writeQueueNums, perm, topicSysFlag


class QueueEntry:
    """Queue numbers, permission and flags of a topic on one broker name. Never changes."""

    __slots__ = ("json", "queue_data")

    def __init__(self, broker_name: str, key: QueueKey) -> None:
        self.queue_data = QueueData(broker_name, *key)
        # The same in every form; made once, since it goes into every route that has the entry.
        self.json = encode_body(self.queue_data)

    @property
    def is_writeable(self) -> bool:
        """True when messages may be sent to these queues."""
        return bool(self.queue_data.perm & PermName.WRITE)


class TopicQueues:
    """A topic: its queues on each broker group, and how static queues map to brokers."""

    __slots__ = ("mappings", "name", "queues")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[BrokerGroup, QueueEntry] = {}
        # Static topics (5.x) only: broker name to its part of the mapping.
        self.mappings: dict[str, TopicQueueMappingInfo] = {}

    @property
    def topic_sys_flag(self) -> int:
        """The unit flags, which all brokers of a topic share; those of the first are taken."""
        for entry in self.queues.values():
            return entry.queue_data.topic_sys_flag
        return 0
