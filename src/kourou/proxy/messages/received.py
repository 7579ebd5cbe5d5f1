"""A stored message, whoever sent it, as gRPC clients get it.

Bodies are always sent inflated: clients of some languages cannot read zlib, none reads LZ4 or Zstandard. Only
a body that does not inflate is sent as it is, marked as compressed; clients take it for corrupted.
The topic's name is not split at a `%`: clients acknowledge with the name that they got.
"""

from __future__ import annotations

import hashlib
from typing import Final

from kourou.errors import ProtocolError
from kourou.protocol.atomic import ATOMIC_PROPERTY
from kourou.protocol.message import MessageExt
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY
from kourou.protocol.properties import MessageConst
from kourou.proxy.messages.message_types import LITE_TOPIC_PROPERTY, SYSTEM_PROPERTIES, type_of_properties
from kourou.proxy.messages.times import MAX_TIME_MS, set_timestamp
from kourou.proxy.wire.rocketmq_v2 import DigestType, Encoding, Message, SystemProperties

_MAX_INT: Final = 2**31 - 1
_NOT_SHOWN: Final = SYSTEM_PROPERTIES | {ATOMIC_PROPERTY, SEQUENCE_PROPERTY}
_KEYS: Final = MessageConst.PROPERTY_KEYS
_TAGS: Final = MessageConst.PROPERTY_TAGS
_BORN_HOST: Final = MessageConst.PROPERTY_BORN_HOST
_SHARDING_KEY: Final = MessageConst.PROPERTY_SHARDING_KEY
_TRACE_CONTEXT: Final = MessageConst.PROPERTY_TRACE_CONTEXT
_DLQ_TOPIC: Final = MessageConst.PROPERTY_DLQ_ORIGIN_TOPIC
_DLQ_ID: Final = MessageConst.PROPERTY_DLQ_ORIGIN_MESSAGE_ID


def fill_message(target: Message, stored: MessageExt, receipt_handle: str = "") -> None:
    """Let `target`, which is empty, be the stored message."""
    properties = stored.properties
    target.topic.name = stored.topic
    for name, value in properties.items():
        if name not in _NOT_SHOWN:
            target.user_properties[name] = value
    system = target.system_properties
    body, encoding = _body_of(stored)
    target.body = body
    system.body_encoding = encoding
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    if tag := properties.get(_TAGS):
        system.tag = tag
    if _KEYS in properties:
        system.keys.extend(stored.keys)
    system.message_id = stored.msg_id
    system.message_type = type_of_properties(properties)
    if 0 <= stored.born_timestamp <= MAX_TIME_MS:
        set_timestamp(system.born_timestamp, stored.born_timestamp)
    system.born_host = properties.get(_BORN_HOST) or stored.born_host.rpartition(":")[0].strip("[]")
    set_timestamp(system.store_timestamp, stored.store_timestamp)
    system.store_host = stored.store_host
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    system.delivery_attempt = min(stored.reconsume_times + 1, _MAX_INT)
    if receipt_handle:
        system.receipt_handle = receipt_handle
    if group := properties.get(_SHARDING_KEY):
        system.message_group = group
    if context := properties.get(_TRACE_CONTEXT):
        system.trace_context = context
    if lite_topic := properties.get(LITE_TOPIC_PROPERTY):
        system.lite_topic = lite_topic
    if stored.priority is not None:
        system.priority = stored.priority
    deliver_ms = _deliver_ms(stored)
    if deliver_ms is not None:
        set_timestamp(system.delivery_timestamp, deliver_ms)
    _fill_dead_letter(system, stored)


def _body_of(stored: MessageExt) -> tuple[bytes, Encoding]:
    try:
        return stored.body, Encoding.IDENTITY
    except ProtocolError:
        return stored.stored_body, Encoding.GZIP


def _deliver_ms(stored: MessageExt) -> int | None:
    """When a timed message was to be delivered. None: it is not timed, or what says so is no time:
    any program may write it."""
    properties = stored.properties
    if (text := properties.get(MessageConst.PROPERTY_TIMER_DELIVER_MS)) is not None:
        start_ms, unit_ms = 0, 1
    elif (text := properties.get(MessageConst.PROPERTY_TIMER_DELAY_MS)) is not None:
        start_ms, unit_ms = stored.born_timestamp, 1
    elif (text := properties.get(MessageConst.PROPERTY_TIMER_DELAY_SEC)) is not None:
        start_ms, unit_ms = stored.born_timestamp, 1000
    else:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        return None
    deliver_ms = start_ms + int(text) * unit_ms
    return deliver_ms if deliver_ms <= MAX_TIME_MS else None


def _fill_dead_letter(system: SystemProperties, stored: MessageExt) -> None:
    topic, msg_id = stored.properties.get(_DLQ_TOPIC), stored.properties.get(_DLQ_ID)
    if topic is not None and msg_id is not None:
        system.dead_letter_queue.topic = topic
        system.dead_letter_queue.message_id = msg_id
