"""SEND_MESSAGE in its forms: checks, then the record goes into the commit cycle.

Nothing is stored when a processor returns: the commit cycle that it belongs to is written as a whole,
and its end answers the senders (commit_cycle.py).
Not here: messages with a delay, and halves of transactions (special_sends.py).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.connection_state import record_born_host
from kourou.broker.delay.delayed_messages import is_delayed
from kourou.broker.delay.timer_processor import recall_handle
from kourou.broker.send.send_answer import SendAnswer
from kourou.broker.send.send_targets import SendHeader, SendTarget, SendTargets, send_context
from kourou.broker.send.sent_properties import PropertyRewriter, SentProperties, by_priority
from kourou.broker.send.special_sends import SpecialSends
from kourou.broker.sequences.originals import Place
from kourou.broker.sequences.sequence_gate import SequenceGate, check_refusal
from kourou.broker.sequences.sequenced_batch import SequencedBatch, identities_of, unsequenced
from kourou.broker.storage.commit_cycle import MAX_CYCLE_BYTES
from kourou.broker.storage.inner_message import InnerMessage
from kourou.broker.transactions.half_messages import check_batch
from kourou.errors import RequestError
from kourou.protocol.batch import BatchEntry, split_batch
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from kourou.protocol.message import MessageExt
from kourou.protocol.names import TOPIC_MAX_LENGTH, is_retry_topic
from kourou.protocol.priority import PRIORITY_START
from kourou.protocol.producer_sequence import RAW_SEQUENCE_START, without_sequence
from kourou.store.log.put_status import PutStatus
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles
    from kourou.transport.tasks import TaskOwner

_ONEWAY: Final = CommandFlag.ONEWAY.value


class SendHandler(ABC):
    """Checks sends of one kind; what becomes of a message that may be sent is up to the kind."""

    def __init__(
        self,
        config: LiveConfig,
        targets: SendTargets,
        properties: PropertyRewriter,
        new_uniq_key: Callable[[], str],
    ) -> None:
        self._config = config
        self._topic_configs = targets.topic_configs
        self._admission = targets.admission
        self._commit_cycle = targets.commit_cycle
        self._hooks = targets.hooks
        self._before_send = targets.hooks.before_send
        self._targets = targets.table
        self._check_topic = targets.check_topic
        self._check_message = targets.check_message
        self._properties = properties
        self._new_uniq_key = new_uniq_key

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
            self._hooks.call(self._before_send, send_context(request, header, properties))
        if header.batch:
            self._put_batch(request, header, topic, queue_id, properties)
        else:
            self._put_one(request, header, target, topic, queue_id, properties)

    @abstractmethod
    def _put_one(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        properties: str,
    ) -> None:
        """Go on with one message that may be sent."""

    @abstractmethod
    def _put_batch(
        self, request: Request, header: SendHeader, topic: str, queue_id: int, properties: str
    ) -> None:
        """The same for a batch."""


class SendMessageProcessor(SendHandler):
    """Handles single sends and batches by producers."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        targets: SendTargets,
        properties: PropertyRewriter,
        new_uniq_key: Callable[[], str],
        cycles: Cycles,
        appender: LogAppender,
        queues: ConsumeQueues,
        answer: SendAnswer,
        special: SpecialSends,
        sequences: SequenceGate,
        requests: TaskOwner,
    ) -> None:
        super().__init__(config, targets, properties, new_uniq_key)
        self._cycles = cycles
        self._appender = appender
        self._queue = queues.get
        self._put = appender.put
        self._answer = answer
        self._stored = answer.stored
        self._special = special
        self._sequences = sequences
        self._note_if_next = sequences.note_if_next
        self._requests = requests

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_v2,
        }

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
        if PRIORITY_START in properties and topic == header.topic:  # else it is a dead letter
            queues, is_retry = target.topic_config.write_queue_nums, is_retry_topic(topic)
            place, properties = by_priority(properties, queue_id, queues, is_retry=is_retry)
            # Sequences of an idempotent producer count in the queue that it named.
            queue_id = queue_id if header.kourou_sequenced else place
        sent = self._properties.read(properties, self._new_uniq_key)
        is_special, sequence = sent[5], sent[6]
        if sequence is None:
            if is_special:
                self._special.put(request, header, target, topic, queue_id, properties, sent)
            else:
                self._put_plain(request, header, target, topic, queue_id, sent)
            return
        if header.kourou_sequenced and not is_retry_topic(header.topic):
            self._admission.check_producer(request, sequence.rpartition(":")[0])
        if (
            header.kourou_sequenced
            and header.queue_id >= 0
            and not is_special
            and topic == header.topic
            and self._note_if_next(
                sequence, topic, queue_id, self._appender.end_phy_offset, self._appender.cycle_ms
            )
        ):
            try:
                self._put_plain(request, header, target, topic, queue_id, sent)
            except BaseException as error:
                self._sequences.undo_note()
                check_refusal(error)
                raise
        else:
            self._put_sequenced(request, header, target, topic, queue_id, properties, sent)

    def _put_plain(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        sent: SentProperties,
    ) -> None:
        stored, uniq_key, tags_code, keys, waits, _, _ = sent
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
            self._cycles.renew()

    def _put_sequenced(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        properties: str,
        sent: SentProperties,
    ) -> None:
        """Store a message of an idempotent producer that is not simply the next one, unless it is a
        repeat."""
        is_special, sequence = sent[5], sent[6]
        assert sequence is not None
        if not header.kourou_sequenced or is_retry_topic(header.topic):
            # One that was forwarded with all its properties: it is not the producer's. (What was sent to a
            # retry topic may be a dead letter by now.)
            self._put_one(request, header, target, topic, queue_id, without_sequence(properties))
        elif header.queue_id < 0:
            raise _unnamed_queue()
        else:
            put: Callable[[], None] = partial(self._put_plain, request, header, target, topic, queue_id, sent)
            stored_in: tuple[tuple[str, int], ...] = ((topic, queue_id),)
            if is_special:
                put = partial(self._special.put, request, header, target, topic, queue_id, properties, sent)
                stored_in = self._special.stored_in(header, topic, queue_id, properties)
            place = Place(topic, queue_id, stored_in)
            answer = partial(self._answer_repeat, request, queue_id)
            self._sequences.put_once(request, sequence, place, put, answer)

    def _answer_repeat(self, request: Request, queue_id: int, original: MessageExt) -> None:
        handle = recall_handle(InnerMessage.of(original), self._config.current.broker_name)
        self._answer.stored_many(
            request,
            queue_id,
            original.msg_id,
            self._commit_cycle.status_of(original.phy_offset + original.store_size),
            [original.phy_offset],
            original.queue_offset,
            recall_handle=handle,
            original_ids=original.msg_id,
        )

    def _put_batch(
        self, request: Request, header: SendHeader, topic: str, queue_id: int, properties: str
    ) -> None:
        if len(topic) > TOPIC_MAX_LENGTH or is_retry_topic(header.topic):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        check_batch(properties)
        _, uniq_key, _, _, waits, is_special, _ = self._properties.read(properties)
        if is_special and is_delayed(properties):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: a batch cannot be delayed, send singly"
            )
        connection = request.connection
        put = partial(
            self._appender.put_many,
            self._queue(topic, queue_id),
            born_timestamp=header.born_timestamp,
            born_host=connection.state.born_host or record_born_host(connection),
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times,
            wait=waits,
        )
        entries = split_batch(request.body)
        # Joined: faster than a search in each of them, or in all bodies.
        has_sequences = RAW_SEQUENCE_START in b"".join([properties for _, _, properties in entries])
        if has_sequences and header.kourou_sequenced:
            if header.queue_id < 0:
                raise _unnamed_queue()
            self._put_sequenced_batch(request, topic, queue_id, uniq_key, entries, put)
        else:
            if has_sequences:
                entries = unsequenced(entries)
            put(entries, done=partial(self._answered_batch, request, queue_id, uniq_key))
        if self._appender.pending_bytes > MAX_CYCLE_BYTES:
            self._cycles.renew()

    def _put_sequenced_batch(
        self,
        request: Request,
        topic: str,
        queue_id: int,
        uniq_key: str,
        entries: list[BatchEntry],
        put: Callable[..., None],
    ) -> None:
        for identity in identities_of(entries):
            self._admission.check_producer(request, identity)
        batch = SequencedBatch(self._sequences, entries, topic, queue_id)
        done = partial(self._stored_sequenced, request, queue_id, uniq_key, batch)
        batch.put_new(lambda new: put(new, done=done))
        if not batch.new_entries:
            run_request(
                self._requests, request, self._answer_sequenced(request, queue_id, uniq_key, batch, (), 0)
            )

    def _stored_sequenced(
        self,
        request: Request,
        queue_id: int,
        uniq_key: str,
        batch: SequencedBatch,
        status: PutStatus,
        phy_offsets: Sequence[int],
        queue_offset: int,
    ) -> None:
        if status is not PutStatus.PUT_OK or not batch.has_repeats:
            self._answered_batch(request, queue_id, uniq_key, status, phy_offsets, queue_offset)
        else:
            answer = self._answer_sequenced(request, queue_id, uniq_key, batch, phy_offsets, queue_offset)
            run_request(self._requests, request, answer)

    async def _answer_sequenced(
        self,
        request: Request,
        queue_id: int,
        uniq_key: str,
        batch: SequencedBatch,
        phy_offsets: Sequence[int],
        queue_offset: int,
    ) -> None:
        outcome = await batch.outcome(phy_offsets, queue_offset)
        status = self._commit_cycle.status_of(outcome.end_phy_offset)  # the new ones are safe
        self._answer.stored_many(
            request,
            queue_id,
            uniq_key,
            status,
            outcome.phy_offsets,
            outcome.queue_offsets[0],
            original_ids=",".join(outcome.original_ids),
            queue_offsets=",".join(map(str, outcome.queue_offsets)),
        )

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


def _unnamed_queue() -> RequestError:
    return RequestError(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal: one of an idempotent producer must name its queue",
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
