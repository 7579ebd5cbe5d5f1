"""Copies of dead letters: what is sent when they are redriven, and how copies are known again."""

from __future__ import annotations

from typing import Final

from kourou.admin.messages.dead_letters import origin_topic
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.names import is_retry_topic
from kourou.protocol.properties import MessageConst

REDRIVEN_FROM: Final = "REDRIVEN_FROM"
"""The property of a copy: the offset ids of the dead letters that it comes from, the newest last."""
_UNIQ_KEY: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_ORIGIN_ID: Final = MessageConst.PROPERTY_ORIGIN_MESSAGE_ID
# So often a message may be redriven until the oldest of its dead letters is forgotten.
_MAX_ANCESTORS: Final = 100
# What the first send, the broker and the attempts so far wrote.
_NOT_COPIED: Final = frozenset(
    {
        MessageConst.PROPERTY_DELAY_TIME_LEVEL,
        MessageConst.PROPERTY_REAL_TOPIC,
        MessageConst.PROPERTY_REAL_QUEUE_ID,
        MessageConst.PROPERTY_WAIT_STORE_MSG_OK,
        MessageConst.PROPERTY_RECONSUME_TIME,
        MessageConst.PROPERTY_MAX_RECONSUME_TIMES,
        MessageConst.PROPERTY_CONSUME_START_TIMESTAMP,
        MessageConst.PROPERTY_TRANSACTION_PREPARED,
        MessageConst.PROPERTY_PRODUCER_GROUP,
        MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES,
        MessageConst.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        MessageConst.PROPERTY_MSG_REGION,
        MessageConst.PROPERTY_TRACE_SWITCH,
        MessageConst.PROPERTY_CLUSTER,
        MessageConst.PROPERTY_MIN_OFFSET,
        MessageConst.PROPERTY_MAX_OFFSET,
        MessageConst.PROPERTY_CRC32,
        MessageConst.PROPERTY_POP_CK,
        MessageConst.PROPERTY_POP_CK_OFFSET,
        MessageConst.PROPERTY_FIRST_POP_TIME,
        MessageConst.PROPERTY_TIMER_DELAY_SEC,
        MessageConst.PROPERTY_TIMER_DELAY_MS,
        MessageConst.PROPERTY_TIMER_DELIVER_MS,
        MessageConst.PROPERTY_TIMER_ENQUEUE_MS,
        MessageConst.PROPERTY_TIMER_DEQUEUE_MS,
        MessageConst.PROPERTY_TIMER_ROLL_TIMES,
        MessageConst.PROPERTY_TIMER_OUT_MS,
        MessageConst.PROPERTY_DLQ_ORIGIN_TOPIC,
        MessageConst.PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        REDRIVEN_FROM,
    }
)


def copy_of_dead_letter(letter: MessageExt, target: str) -> Message:
    """What is sent: the same message without traces of its first life, and where it comes from."""
    copy = Message(target, letter.body, flag=letter.flag)
    for name, value in letter.properties.items():
        if name not in _NOT_COPIED:
            copy.put_property(name, value)
    copy.put_property(_UNIQ_KEY, letter.msg_id)
    if is_retry_topic(target):
        copy.put_property(MessageConst.PROPERTY_RETRY_TOPIC, origin_topic(letter) or "")
    else:
        copy.clear_property(MessageConst.PROPERTY_RETRY_TOPIC)
        copy.clear_property(_ORIGIN_ID)
    ancestors = [*_ancestors(letter), letter.offset_msg_id][-_MAX_ANCESTORS:]
    copy.put_property(REDRIVEN_FROM, ",".join(ancestors))
    return copy


def is_copy_of(message: MessageExt, letter: MessageExt) -> bool:
    """Whether a message with the id of a dead letter was redriven from it."""
    if letter.offset_msg_id in _ancestors(message):
        return True
    is_later_retry = is_retry_topic(message.topic) and message.store_timestamp >= letter.store_timestamp
    if not is_later_retry or message.get_property(_ORIGIN_ID) != letter.get_property(_ORIGIN_ID):
        return False
    # Taken back by the broker; or the letter is a copy that a broker took for given up at once.
    is_rejected_copy = letter.reconsume_times == 0 and bool(_ancestors(letter))
    return is_rejected_copy or message.reconsume_times == letter.reconsume_times + 1


def _ancestors(message: MessageExt) -> list[str]:
    text = message.get_property(REDRIVEN_FROM)
    return text.split(",") if text else []
