"""What is put again of a message that a group could not consume: once more for the group, or as a dead
letter.

Both remember the first topic (RETRY_TOPIC) and the first record (ORIGIN_MESSAGE_ID). Not here: when a group
has tried often enough (send_back_processor.py, pop/revive_service.py), what an overflow policy takes from its
backlog (overflow/drops.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.broker.storage.inner_message import InnerMessage
from kourou.protocol.codes import PermName
from kourou.protocol.names import dlq_topic
from kourou.protocol.properties import MessageConst

if TYPE_CHECKING:
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.protocol.message import MessageExt

_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)
_DLQ_QUEUES: Final = 1


def next_attempt(record: MessageExt, first_topic: str) -> InnerMessage:
    """The same message, once more tried."""
    message = copy_with_origin(record, first_topic)
    message.reconsume_times += 1
    return message


def copy_with_origin(record: MessageExt, first_topic: str) -> InnerMessage:
    """The same message again; where it came from first stays in it, else `first_topic` and the record."""
    message = InnerMessage.of(record)
    if message.get_property(MessageConst.PROPERTY_RETRY_TOPIC) is None:
        message.set_property(MessageConst.PROPERTY_RETRY_TOPIC, first_topic)
    if message.get_property(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID) is None:
        message.set_property(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID, record.offset_msg_id)
    # As Apache leaves it. It matters when the message comes again by way of a delay level.
    message.set_property(MessageConst.PROPERTY_WAIT_STORE_MSG_OK, "false")
    return message


def make_dead_letter(message: InnerMessage, group: str, topics: TopicConfigManager) -> None:
    """Have the message go to the dead letters of the group, whose topic is made if it is not there."""
    message.topic, message.queue_id = dlq_topic(group), 0
    message.set_property(MessageConst.PROPERTY_DELAY_TIME_LEVEL, "0")
    topics.create_in_send_back(message.topic, _DLQ_QUEUES, _READ_WRITE)
