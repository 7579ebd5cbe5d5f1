"""Outgoing: turns messages into requests: checked, given an id, compressed, encoded.

A message gets its unique id here, once: sent again by the application, it keeps the id. Everything else that
a request adds (namespace, transaction, correlation) leaves the message unchanged. `plan_batches` decides
which messages share a request. PreparedOutgoing has hooks change messages first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from kourou.client.core.message_checks import check_body, check_message, checked_properties
from kourou.client.core.namespaces import Namespace
from kourou.client.core.unique_id import UniqueIds
from kourou.client.producer.producer_hooks import Preparation
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.producer.send_request import SendRequest, SequencedRequest
from kourou.protocol.batch import BatchEntry, batch_problem, encode_batch_entries
from kourou.protocol.codes import RequestCode
from kourou.protocol.compression import compress
from kourou.protocol.message import Message
from kourou.protocol.properties import (
    MAX_SENT_PROPERTIES_BYTES,
    MessageConst,
    encode_properties,
    properties_to_bytes,
    property_pair,
)

# Overhead of a batch entry, besides body and properties.
_ENTRY_BYTES: Final = 22
# Reserve for the unique id, which is added before the send.
_ADDED_BYTES: Final = 80
_ALONE: Final = (
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
    MessageConst.PROPERTY_MESSAGE_TYPE,
)


# A sequence with its name: `__KOUROU_SEQ`, a producer name, an epoch and a number, with their separators.
_SEQUENCE_BYTES: Final = 112
MAX_SEQUENCED_BATCH: Final = 256
"""Messages of a batch of an idempotent producer: several batches fit into what a queue may have in flight."""


def plan_batches(
    messages: Sequence[Message], max_batch_bytes: int, *, is_sequenced: bool = False
) -> list[list[int]]:
    """The positions in `messages` of those that share a request. A message larger than the limit goes alone.

    Messages of a batch have the same topic, `wait_store_msg_ok` and priority. Delayed messages, replies and
    messages for a retry topic are sent alone.

    >>> a, b = Message("A", b"1"), Message("B", b"2")
    >>> plan_batches([a, b, a], 1000)
    [[0, 2], [1]]
    """
    added, most = (_SEQUENCE_BYTES, MAX_SEQUENCED_BATCH) if is_sequenced else (0, len(messages))
    batches: list[list[int]] = []
    open_batches: dict[tuple[str, bool, int | None], tuple[list[int], int]] = {}
    for index, message in enumerate(messages):
        if not _may_join(message):
            batches.append([index])
            continue
        kind = (message.topic, message.wait_store_msg_ok, message.priority)
        size = entry_bytes(message) + added
        batch, filled = open_batches.get(kind, ([], max_batch_bytes))
        if filled + size > max_batch_bytes or len(batch) >= most:
            batch, filled = [], 0
            batches.append(batch)
        batch.append(index)
        open_batches[kind] = (batch, filled + size)
    return batches


def entry_bytes(message: Message) -> int:
    """An upper bound of the bytes that a message takes in a batch."""
    properties = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    # Other characters take up to three bytes; an estimate too high is better than a batch too large.
    if not all(value.isascii() and name.isascii() for name, value in message.properties.items()):
        properties *= 3
    return _ENTRY_BYTES + _ADDED_BYTES + len(message.body) + properties


def _may_join(message: Message) -> bool:
    if any(message.get_property(name) for name in _ALONE):
        return False
    return batch_problem([message]) is None


REPLY: Final = "reply"
_SEND: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
_SEND_REPLY: Final = RequestCode.SEND_REPLY_MESSAGE_V2.value
_UNIQ_KEY: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_MESSAGE_TYPE: Final = MessageConst.PROPERTY_MESSAGE_TYPE
# Text up to this length is within the limit even at four bytes a character.
_SHORT_TEXT: Final = MAX_SENT_PROPERTIES_BYTES // 4
# Limit of cached topics; others are checked again for each message.
_MAX_TOPICS: Final = 10_000


class Outgoing:
    """Builds the requests of one producer."""

    def __init__(self, namespace: Namespace, options: ProducerOptions, ids: UniqueIds) -> None:
        self._namespace = namespace
        self._options = options
        self._ids = ids
        self._max_message_bytes = options.max_message_bytes
        self._request_type = SequencedRequest if options.is_idempotent else SendRequest
        self._topics: dict[str, str] = {}
        self._instance_id = (
            encode_properties({MessageConst.PROPERTY_INSTANCE_ID: namespace.name}) if namespace.name else ""
        )

    def request(
        self, message: Message, *, extra: str = "", sys_flag: int = 0, body: bytes | None = None
    ) -> SendRequest:
        """The request of one message. `body`: the body, if it is already compressed."""
        topic = self._checked_topic(message)
        uniq_key = self.uniq_key(message)
        if self._instance_id:
            extra += self._instance_id
        if body is None:
            body = message.body
            if len(body) >= self._options.compress_over_bytes:
                body = self.compressed(body)
        if body is not message.body:
            sys_flag |= self._options.compression.sys_flag
        properties = _encoded(message)
        return self._request_type(
            # Most messages have no type: a search in the text is cheaper than a lookup in the properties.
            _code_of(message) if _MESSAGE_TYPE in properties else _SEND,
            topic,
            body,
            properties + extra,
            uniq_key,
            sys_flag,
            message.flag,
            int(time.time() * 1000),
            extra,
        )

    def part(self, messages: Sequence[Message]) -> SendRequest:
        """The request of messages that share one, or of one that goes alone; hooks have prepared them."""
        return self.batch(messages) if len(messages) > 1 else Outgoing.request(self, messages[0])

    def batch(self, messages: Sequence[Message]) -> SendRequest:
        """The request of a batch; bodies of batches are not compressed."""
        first = messages[0]
        topic = self._checked_topic(first)
        entries = []
        for message in messages:
            self._checked_topic(message)
            self.uniq_key(message)
            entries.append(BatchEntry(message.flag, message.body, properties_to_bytes(_encoded(message))))
        body = encode_batch_entries(entries)
        check_body(first.topic, body, max_message_bytes=self._max_message_bytes)
        request = self._request_type(
            _SEND_BATCH,
            topic,
            body,
            self._batch_properties(first),
            self._ids.next_id(),
            0,
            0,
            int(time.time() * 1000),
            batch=True,
        )
        if isinstance(request, SequencedRequest):
            request.entries = entries
        return request

    def compressed(self, body: bytes) -> bytes:
        """The body to send: compressed, if that makes it smaller."""
        smaller = compress(body, self._options.compression, self._options.compress_level)
        return smaller if len(smaller) < len(body) else body

    def uniq_key(self, message: Message) -> str:
        """The message's unique id, generated if it has none."""
        uniq_key = message.get_property(_UNIQ_KEY)
        if uniq_key is None:
            uniq_key = self._ids.next_id()
            message.put_property(_UNIQ_KEY, uniq_key)
        return uniq_key

    def _checked_topic(self, message: Message) -> str:
        """The topic as brokers know it; MessageRefusedError for a message that no broker would accept."""
        if type(message) is Message and 0 < len(message.body) <= self._max_message_bytes:
            topic = self._topics.get(message.topic)
            if topic is not None:
                return topic
        check_message(message, max_message_bytes=self._max_message_bytes)
        is_reply = message.get_property(_MESSAGE_TYPE) == REPLY
        topic = message.topic if is_reply else self._namespace.wrap(message.topic)
        if len(self._topics) < _MAX_TOPICS and not is_reply:
            self._topics[message.topic] = topic
        return topic

    def _batch_properties(self, first: Message) -> str:
        if first.wait_store_msg_ok:
            return self._instance_id
        return property_pair(MessageConst.PROPERTY_WAIT_STORE_MSG_OK, "false") + self._instance_id


class PreparedOutgoing(Outgoing):
    """Builds the requests of a producer whose hooks prepare messages."""

    def __init__(
        self, namespace: Namespace, options: ProducerOptions, ids: UniqueIds, preparation: Preparation
    ) -> None:
        super().__init__(namespace, options, ids)
        self._preparation = preparation

    def request(
        self, message: Message, *, extra: str = "", sys_flag: int = 0, body: bytes | None = None
    ) -> SendRequest:
        """The request of one message, after the hooks."""
        self._preparation((message,))
        return super().request(message, extra=extra, sys_flag=sys_flag, body=body)


def _encoded(message: Message) -> str:
    """The property string. The slow path reports what is wrong with it."""
    try:
        text = message.encode_properties()
    except ValueError:
        return checked_properties(message)
    return text if len(text) <= _SHORT_TEXT else checked_properties(message)


def _code_of(message: Message) -> int:
    return _SEND_REPLY if message.get_property(_MESSAGE_TYPE) == REPLY else _SEND
