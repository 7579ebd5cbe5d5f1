"""SEND_MESSAGE in its forms: checks, then the record goes into the commit cycle.

Nothing is stored when a processor returns: the commit cycle that it belongs to is written as a whole,
and its end answers the senders (commit_cycle.py).
Not here: where a message with a delay waits (delayed_messages.py), how a
transaction ends (transactions.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.admission import Ruling
from kourou.broker.connection_state import record_born_host
from kourou.broker.delay.delayed_messages import delay
from kourou.broker.delay.recall_handle import recall_handle
from kourou.broker.hooks import SendContext
from kourou.broker.send.fast_send_path import FastSendPath
from kourou.broker.send.inner_message import InnerMessage, put_indexed
from kourou.broker.send.send_answer import SendAnswer
from kourou.broker.send.sent_properties import PropertyRewriter, SentProperties, is_delayed
from kourou.broker.storage.commit_cycle import MAX_CYCLE_BYTES
from kourou.broker.transactions.half_message_cache import CachedHalfMessage, HalfMessageCache
from kourou.broker.transactions.half_messages import (
    check_batch,
    check_half,
    group_of_plain,
    half_properties,
    half_sys_flag,
    is_half,
)
from kourou.errors import RequestError
from kourou.protocol.batch import split_batch
from kourou.protocol.bodies.topics import TopicConfig, TopicFilterType
from kourou.protocol.codes import CommandFlag, MessageSysFlag, PermName, RequestCode, ResponseCode
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from kourou.protocol.layout import HOST_V4_BYTES
from kourou.protocol.message_id import UniqueIdGenerator, host_text
from kourou.protocol.names import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TOPIC_MAX_LENGTH,
    is_retry_topic,
)
from kourou.protocol.properties import MessageConst, properties_from_bytes, set_property
from kourou.protocol.versions import V3_4_9
from kourou.store.kernel import Kernel
from kourou.store.log.put_status import PutStatus
from kourou.transport.addresses import parse_address
from kourou.transport.connection import BulkHandler
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

_ONEWAY: Final = CommandFlag.ONEWAY.value
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


class SendMessageProcessor:
    """Takes messages of producers."""

    def __init__(self, services: BrokerServices, half_cache: HalfMessageCache | None = None) -> None:
        config = services.config
        self._services = services
        self._half_cache = HalfMessageCache() if half_cache is None else half_cache
        self._topic_configs = services.topics.table
        self._targets: dict[str, SendTarget] = {}
        self._commit_cycle = services.commit_cycle
        self._admission = services.admission
        self._store = services.store
        self._queue = services.store.queues.get
        self._put = services.store.put
        self._before_send = services.hooks.before_send
        self._answer = SendAnswer(services.store_host, config.region_id, config.trace_on)
        self._stored = self._answer.stored
        self._properties = PropertyRewriter(
            cluster=config.broker_cluster_name, region=config.region_id, trace_on=config.trace_on
        )
        self._new_uniq_key = UniqueIdGenerator(
            ip=parse_address(host_text(services.store_host))[0],
            pid=services.start_ms & 0xFFFF,
            class_loader_hash=services.start_ms,
            now_ms=services.now_ms,
        )

    def processors(self) -> dict[int, Processor]:
        """Who handles which request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_v2,
        }

    def bulk_handler(self, kernel: Kernel | None) -> BulkHandler | None:
        """What takes many sends at once; None without a kernel."""
        if kernel is None or len(self._services.store_host) != HOST_V4_BYTES:
            return None
        return FastSendPath(self._services, kernel, self._targets, self._properties.own, self._answer)

    def send(self, request: Request) -> None:
        """SEND_MESSAGE, with long names."""
        self._send(request, request.header(SendMessageRequestHeader))

    def send_v2(self, request: Request) -> None:
        """SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, with letters for names."""
        self._send(request, decode_ext(request.head, SendMessageRequestHeaderV2))

    def _send(self, request: Request, header: SendHeader) -> None:
        topic, queue_id = header.topic, header.queue_id
        target = self._targets.get(topic)
        if (
            target is None
            or target.topic_config is not self._topic_configs.get(topic)
            or target.ruling is not self._admission.ruling
        ):
            target = self._check_topic(request, header)
        if queue_id >= target.queue_nums:
            raise _no_such_queue(request, header, target)
        if self._commit_cycle.waiting_messages:
            self._admission.check_room()
        if queue_id < 0:
            queue_id = random.randrange(max(1, target.topic_config.write_queue_nums))
        properties = header.properties or ""
        if target.needs_slow_path:
            topic, queue_id, properties = self._check_message(request, header, queue_id, properties)
        if self._before_send:
            self._services.hooks.call(self._before_send, _context(request, header, properties))
        if header.batch:
            self._put_batch(request, header, topic, queue_id, properties)
        else:
            self._put_one(request, header, target, topic, queue_id, properties)

    # -- storing ---------------------------------------------------------------------------------

    def _put_one(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        properties: str,
    ) -> None:
        sent = self._properties.read(properties, self._new_uniq_key)
        stored, uniq_key, tags_code, keys, waits, is_special = sent
        if is_special:
            self._put_special(request, header, target, topic, queue_id, properties, sent)
            return
        connection = request.connection
        pending_bytes = self._put(
            self._queue(topic, queue_id),
            request.body,
            stored,
            tags_code,
            keys,
            header.born_timestamp,
            connection.state.born_host or record_born_host(connection),
            header.sys_flag | target.sys_flag,
            header.flag,
            header.reconsume_times,
            0,
            None if request.head.flag & _ONEWAY else partial(self._stored, request, queue_id, uniq_key),
            waits,
        )
        if pending_bytes > MAX_CYCLE_BYTES:
            self._services.cycles.renew()

    def _put_special(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        properties: str,
        sent: SentProperties,
    ) -> None:
        """Store a message that may have a delay, or be the half of a transaction."""
        if is_half(header, properties):
            check_half(self._services.config, self._services.address, properties)
            pending_bytes = self._put_half(request, header, target, topic, queue_id, properties, sent)
        else:
            self._put_delayed(request, header, target, topic, queue_id, sent)
            pending_bytes = self._store.pending_bytes
        if pending_bytes > MAX_CYCLE_BYTES:
            self._services.cycles.renew()

    def _put_delayed(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        sent: SentProperties,
    ) -> None:
        stored, uniq_key, tags_code, keys, waits, _ = sent
        message = self._inner_message(request, header, target, topic, queue_id, stored)
        delay(self._services, message)
        handle = recall_handle(message, self._services.config.broker_name)
        done = (
            partial(self._stored, request, queue_id, uniq_key)
            if handle is None
            else partial(self._answer_timer, request, queue_id, uniq_key, handle)
        )
        put_indexed(self._services, message, tags_code, keys, None if request.is_oneway else done, waits)

    def _inner_message(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        stored: bytes,
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

    def _put_half(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        properties: str,
        sent: SentProperties,
    ) -> int:
        """Leave a half pending; how many bytes are pending then."""
        stored, uniq_key, tags_code, keys, waits, _ = sent
        connection = request.connection
        half = CachedHalfMessage(
            group_of_plain(properties),
            topic,
            queue_id,
            request.body,
            half_properties(stored, topic, queue_id, uniq_key),
            tags_code,
            keys,
            header.born_timestamp,
            connection.state.born_host or record_born_host(connection),
            half_sys_flag(header.sys_flag | target.sys_flag),
            header.flag,
            header.reconsume_times,
        )
        return self._put(
            self._queue(RMQ_SYS_TRANS_HALF_TOPIC, 0),
            half.body,
            half.properties,
            tags_code,
            keys,
            half.born_timestamp,
            half.born_host,
            half.sys_flag,
            half.flag,
            half.reconsume_times,
            0,
            None if request.head.flag & _ONEWAY else partial(self._half_stored, request, uniq_key, half),
            waits,
        )

    def _half_stored(
        self,
        request: Request,
        uniq_key: str,
        half: CachedHalfMessage,
        status: PutStatus,
        phy_offset: int,
        queue_offset: int,
    ) -> None:
        if status is PutStatus.PUT_OK and half.producer_group:
            self._half_cache.add(half, phy_offset, queue_offset)
        self._stored(request, half.queue_id, uniq_key, status, phy_offset, queue_offset)

    def _answer_timer(
        self,
        request: Request,
        queue_id: int,
        uniq_key: str,
        handle: str,
        status: PutStatus,
        phy_offset: int,
        queue_offset: int,
    ) -> None:
        self._answer.stored_many(
            request, queue_id, uniq_key, status, [phy_offset], queue_offset, recall_handle=handle
        )

    def _put_batch(
        self, request: Request, header: SendHeader, topic: str, queue_id: int, properties: str
    ) -> None:
        if len(topic) > TOPIC_MAX_LENGTH or is_retry_topic(topic):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {topic}"
            )
        check_batch(properties)
        _, uniq_key, _, _, waits, is_special = self._properties.read(properties)
        if is_special and is_delayed(properties):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: a batch cannot be delayed, send singly"
            )
        connection = request.connection
        done = partial(self._answered_batch, request, queue_id, uniq_key)
        self._store.put_many(
            self._queue(topic, queue_id),
            split_batch(request.body),
            born_timestamp=header.born_timestamp,
            born_host=connection.state.born_host or record_born_host(connection),
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times,
            done=done,
            wait=waits,
        )
        if self._store.pending_bytes > MAX_CYCLE_BYTES:
            self._services.cycles.renew()

    def _answered_batch(
        self,
        request: Request,
        queue_id: int,
        uniq_key: str,
        status: PutStatus,
        phy_offsets: Sequence[int],
        queue_offset: int,
    ) -> None:
        self._answer.stored_many(request, queue_id, uniq_key, status, list(phy_offsets), queue_offset)

    # -- checking --------------------------------------------------------------------------------

    def _check_topic(self, request: Request, header: SendHeader) -> SendTarget:
        """What need not be checked again for each message, until a configuration or the ruling changes."""
        admission = self._admission
        admission.check_accepting()
        topic_config = self._topic_configs.get(header.topic) or self._create_topic(request, header)
        admission.check_send(topic_config)
        target = SendTarget(
            topic_config,
            admission.ruling,
            max(topic_config.read_queue_nums, topic_config.write_queue_nums),
            _MULTI_TAGS if topic_config.topic_filter_type == TopicFilterType.MULTI_TAG else 0,
            is_retry_topic(header.topic) or admission.sees_messages_of(header.topic),
        )
        if admission.is_writable:
            self._targets[header.topic] = target
        return target

    def _create_topic(self, request: Request, header: SendHeader) -> TopicConfig:
        """The topic of a first send, made if that is allowed."""
        topics = self._services.topics
        topics.check_topic_name(header.topic)
        self._admission.check_topic_name(header.topic)
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

    def _check_message(
        self, request: Request, header: SendHeader, queue_id: int, properties: str
    ) -> tuple[str, int, str]:
        """Where a message of a slow-path topic goes, and its properties; RequestError: a check rejects it."""
        topic = header.topic
        if is_retry_topic(topic) and self._is_given_up(request, header):
            topic, queue_id, properties = self._dead_letter(topic, properties)
        self._admission.check_message(_context(request, header, properties))
        return topic, queue_id, properties

    def _is_given_up(self, request: Request, header: SendHeader) -> bool:
        """Whether a message to a retry topic was tried often enough. A group that consumes in order
        tries again by itself: what it sends is what it has given up on."""
        group = header.topic[len(RETRY_GROUP_TOPIC_PREFIX) :]
        group_config = self._services.groups.find(group)
        if group_config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}, create it with updateSubGroup",
            )
        max_times = group_config.retry_max_times
        if header.max_reconsume_times is not None and request.version >= V3_4_9:
            max_times = header.max_reconsume_times
        return header.reconsume_times > max_times or not self._services.locks.is_lock_all_expired(group)

    def _dead_letter(self, retry_topic: str, properties: str) -> tuple[str, int, str]:
        """Topic, queue and properties of a message that is tried no more."""
        topic = DLQ_GROUP_TOPIC_PREFIX + retry_topic[len(RETRY_GROUP_TOPIC_PREFIX) :]
        self._services.topics.create_in_send_back(topic, 1, _READ_WRITE)
        return topic, 0, set_property(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL, "-1")


def _context(request: Request, header: SendHeader, properties: str) -> SendContext:
    return SendContext(
        header.topic,
        header.queue_id,
        header.producer_group,
        request.body,
        properties,
        request.connection.remote_address,
    )


def _described(config: TopicConfig) -> str:
    """A topic in Apache's words: tools show them."""
    perm = "".join(letter if config.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    attributes = ", ".join(f"{name}={value}" for name, value in (config.attributes or {}).items())
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}, "
        f"attributes={{{attributes}}}]"
    )


def _no_such_queue(request: Request, header: SendHeader, target: SendTarget) -> RequestError:
    return RequestError(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{header.queue_id}] is illegal, {_described(target.topic_config)} "
        f"Producer: {request.connection.remote_address}",
    )
