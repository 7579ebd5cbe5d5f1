"""SpecialSends: messages that wait: for their time, or for the end of their transaction.

Not here: where a message with a delay waits (delayed_messages.py), how a transaction ends (transactions.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kourou.broker.connection_state import record_born_host
from kourou.broker.delay.delayed_messages import waiting_queues
from kourou.broker.delay.timer_processor import recall_handle
from kourou.broker.send.send_answer import SendAnswer
from kourou.broker.send.send_targets import SendHeader, SendTarget, inner_message
from kourou.broker.send.sent_properties import SentProperties
from kourou.broker.storage.commit_cycle import MAX_CYCLE_BYTES
from kourou.broker.storage.inner_message import MessageWriter
from kourou.broker.transactions.half_message_states import CachedHalfMessage, HalfMessageCache
from kourou.broker.transactions.half_messages import (
    check_half,
    group_of_plain,
    half_properties,
    half_sys_flag,
    is_half,
)
from kourou.protocol.names import RMQ_SYS_TRANS_HALF_TOPIC
from kourou.store.log.put_status import PutStatus
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.event_counters import EventCounters
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles


class SpecialSends:
    """Puts such messages for one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        address: str,
        cycles: Cycles,
        appender: LogAppender,
        queues: ConsumeQueues,
        writer: MessageWriter,
        answer: SendAnswer,
        half_cache: HalfMessageCache,
        delay_levels: tuple[int, ...],
        events: EventCounters,
    ) -> None:
        self._config = config
        self._address = address
        self._cycles = cycles
        self._appender = appender
        self._put = appender.put
        self._queue = queues.get
        self._writer = writer
        self._answer = answer
        self._stored = answer.stored
        self._half_cache = half_cache
        self._delay_levels = delay_levels
        self._events = events

    def put(
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
            check_half(self._config.current, self._address, properties)
            pending_bytes = self._put_half(request, header, target, topic, queue_id, properties, sent)
        else:
            self._put_delayed(request, header, target, topic, queue_id, sent)
            pending_bytes = self._appender.pending_bytes
        if pending_bytes > MAX_CYCLE_BYTES:
            self._cycles.renew()

    def stored_in(
        self, header: SendHeader, topic: str, queue_id: int, properties: str
    ) -> tuple[tuple[str, int], ...]:
        """Topic and queue_id of the queues in which such a message may lie."""
        if is_half(header, properties):
            return ((RMQ_SYS_TRANS_HALF_TOPIC, 0),)
        return (*waiting_queues(properties, self._delay_levels), (topic, queue_id))

    def _put_delayed(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        sent: SentProperties,
    ) -> None:
        stored, uniq_key, tags_code, keys, waits, _, _ = sent
        message = inner_message(request, header, target, topic, queue_id, stored)
        self._writer.delay(message)
        handle = recall_handle(message, self._config.current.broker_name)
        done = (
            partial(self._stored, request, queue_id, uniq_key)
            if handle is None
            else partial(self._answer_timer, request, queue_id, uniq_key, handle)
        )
        self._writer.put_indexed(message, tags_code, keys, None if request.is_oneway else done, waits)

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
        stored, uniq_key, tags_code, keys, waits, _, _ = sent
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
            None if request.is_oneway else partial(self._half_stored, request, uniq_key, half),
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
        if status.is_stored:
            self._events.half_stored(half.topic)
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
