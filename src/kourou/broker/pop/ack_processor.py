"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.

The topic of an ack is the one that the message lies in; a batch names the one that the consumer subscribes
to. An ack of a message that is not in flight changes nothing and is answered as if it had, as RocketMQ does:
its time has ended, or it comes twice. A receipt handle that contradicts its request, or is of another broker,
is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from kourou.broker.pop.order_info import AckResult, OrderKey
from kourou.errors import ProtocolError, RequestError
from kourou.protocol.bodies.batch_ack import BatchAck, decode_batch_acks
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from kourou.protocol.pop.receipt_handle import ORDERLY_REVIVE_QUEUE_ID, ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind, topic_of_kind
from kourou.protocol.pop.revive_records import CheckPointKey
from kourou.store.log.put_status import PutRefusedError, PutStatus

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.pop.contracts import PopStored
    from kourou.broker.pop.in_flight import ChangedTime, MessagesInFlight
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.request import Processor, Request

_OneMessage: TypeAlias = AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader

_MAX_ACKS: Final = 65_536
"""Messages that one request may acknowledge: its bit sets are unpacked at once."""
_BITS_PER_CHARACTER: Final = 6
_MAX_INVISIBLE_MS: Final = 1 << 52


class _AdmittedAck(NamedTuple):
    """The check point of acks, and which offsets they may have."""

    key: CheckPointKey
    low: int
    high: int


class OrderedAcks(Protocol):
    """Acks of messages that were popped in order (orders.py)."""

    def ack(
        self, key: OrderKey, *, queue_offset: int, pop_time: int, client_host: str, done: PopStored
    ) -> AckResult:
        """`done` is called, once, if the result is DONE."""
        ...

    def change_invisible_time(
        self, key: OrderKey, *, queue_offset: int, pop_time: int, invisible_time_ms: int, done: PopStored
    ) -> AckResult:
        """As `ack`."""
        ...


class AckProcessor:
    """Serves acks and changes of the invisible time."""

    def __init__(
        self,
        *,
        in_flight: MessagesInFlight,
        orders: OrderedAcks,
        config: LiveConfig,
        admission: Admission,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueues,
        before_write: list[Callable[[], None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._in_flight = in_flight
        self._orders = orders
        self._config = config
        self._admission = admission
        self._topics = topics
        self._offsets = offsets
        self._queues = queues
        self._now_ms = now_ms
        # Acks that were admitted in the open commit cycle, by all that they are checked for but their offset.
        self._admitted: dict[tuple[str, int, str, str], _AdmittedAck] = {}
        self._before_write = before_write

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
        }

    # -- one message -------------------------------------------------------------------------------

    def ack(self, request: Request) -> None:
        """ACK_MESSAGE."""
        header = request.header(AckMessageRequestHeader)
        done = partial(_answer, request)
        key = self._admitted_key(header)
        if key is None:
            # A consumer may acknowledge up to the end, as in RocketMQ.
            handle = self._checked(header, past_end=1)
            if handle.is_orderly:
                if not self._ack_in_order(request, header, handle, done):
                    request.reply()
                return
            key = self._key(header, handle)
            if self._in_flight.ack(key, (header.queue_offset,), done):
                self._admit(header, key)
            else:
                request.reply()
        elif not self._in_flight.ack(key, (header.queue_offset,), done):
            request.reply()

    def _admitted_key(self, header: AckMessageRequestHeader) -> CheckPointKey | None:
        """The check point of an ack like one that was admitted in this commit cycle. None: it has to be
        checked."""
        parts = ReceiptHandle.split(header.extra_info)
        if parts is None:
            return None
        common, queue_offset = parts
        admitted = self._admitted.get((common, header.queue_id, header.topic, header.consumer_group))
        if admitted is None or queue_offset != header.queue_offset:
            return None
        return admitted.key if admitted.low <= queue_offset <= admitted.high else None

    def _admit(self, header: AckMessageRequestHeader, key: CheckPointKey) -> None:
        """Acks like this one are admitted until the commit cycle ends, which is open."""
        parts = ReceiptHandle.split(header.extra_info)
        assert parts is not None, "the handle was read"
        case = (parts[0], header.queue_id, header.topic, header.consumer_group)
        if not self._admitted:
            self._before_write.append(self._admitted.clear)
        self._admitted[case] = _AdmittedAck(key, *self._bounds(header.topic, header.queue_id))

    def _checked(self, header: _OneMessage, *, past_end: int) -> ReceiptHandle:
        """The receipt handle of a request; RequestError rejects it."""
        self._check_master()
        topic, queue_id, queue_offset = header.topic, header.queue_id, header.queue_offset
        topic_config = self._topics.get(topic)
        if topic_config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not 0 <= queue_id < topic_config.read_queue_nums:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}]",
            )
        low, high = self._bounds(topic, queue_id)
        if not low <= queue_offset < high + past_end:
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{queue_offset}, store:{low}~{high}",
            )
        handle = ReceiptHandle.decode(header.extra_info)
        if (handle.queue_id, handle.queue_offset) != (queue_id, queue_offset):
            raise _illegal(
                f"the receipt handle is of queue {handle.queue_id}, offset {handle.queue_offset}, the "
                f"request of queue {queue_id}, offset {queue_offset}"
            )
        key = self._key(header, handle)
        # A message that was popped from a retry topic by the name of that has the handle of any topic.
        is_direct = handle.kind is PopTopicKind.NORMAL and self._in_flight.knows(key)
        if handle.kind is not PopTopicKind.of(topic) and not is_direct:
            raise _illegal(f"the receipt handle is of another topic than [{topic}]: kind {handle.kind.value}")
        self._check_broker(handle.broker_name, key)
        return handle

    def _check_master(self) -> None:
        if self._admission.is_slave:
            raise RequestError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "this broker is a slave: messages are acknowledged at the master that they were popped from",
            )

    def _check_broker(self, broker_name: str, key: CheckPointKey) -> None:
        """A store may have been taken over from a broker of another name, with what was in flight."""
        own_name = self._config.current.broker_name
        if broker_name != own_name and not self._in_flight.knows(key):
            raise _illegal(
                f"the receipt handle is of broker {broker_name}, this is {own_name}; send it to the broker "
                "that the message was popped from"
            )

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self._queues.find(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_queue_offset, queue.max_queue_offset)

    @staticmethod
    def _key(header: _OneMessage, handle: ReceiptHandle) -> CheckPointKey:
        return CheckPointKey(
            header.topic,
            header.consumer_group,
            header.queue_id,
            handle.start_offset,
            handle.pop_time,
            handle.broker_name,
        )

    def _ack_in_order(
        self, request: Request, header: AckMessageRequestHeader, handle: ReceiptHandle, done: PopStored
    ) -> bool:
        """False: there is nothing to be stored."""
        key = OrderKey(header.topic, header.consumer_group, header.queue_id)
        if header.queue_offset < self._offsets.query(key.group, key.topic, key.queue_id):
            return False
        result = self._orders.ack(
            key,
            queue_offset=header.queue_offset,
            pop_time=handle.pop_time,
            client_host=request.connection.remote_address,
            done=done,
        )
        if result is AckResult.NOT_POPPED:
            raise _not_popped(key, header.queue_offset)
        return result is AckResult.DONE

    # -- many messages -----------------------------------------------------------------------------

    def batch_ack(self, request: Request) -> None:
        """BATCH_ACK_MESSAGE: what is not in flight is passed over. The answer is the first failure."""
        self._check_master()
        body = decode_batch_acks(request.body or b"{}")
        if not body.acks:
            raise RequestError(ResponseCode.NO_MESSAGE, "the request acknowledges no message")
        if sum(len(ack.bit_set) for ack in body.acks) * _BITS_PER_CHARACTER > _MAX_ACKS:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the bit sets of the request have room for more than {_MAX_ACKS} messages; send it in parts",
            )
        # All of them are read before any has an effect.
        parts = [(ack, _topic_of(ack), ack.queue_offsets()) for ack in body.acks]
        answer = _Answers(request)
        for ack, topic, offsets in parts:
            low, high = self._bounds(topic, ack.queue_id)
            offsets = [offset for offset in offsets if low <= offset < high]
            if ack.revive_queue_id == ORDERLY_REVIVE_QUEUE_ID:
                key = OrderKey(topic, ack.consumer_group, ack.queue_id)
                self._ack_part_in_order(request, key, ack, offsets, answer)
            elif offsets:
                self._ack_part(topic, ack, offsets, body.broker_name, answer)
        answer.all_sent()

    def _ack_part(
        self, topic: str, ack: BatchAck, offsets: list[int], broker_name: str, answer: _Answers
    ) -> None:
        broker_name = broker_name or self._config.current.broker_name
        key = CheckPointKey(
            topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time, broker_name
        )
        answer.expect()
        if not self._in_flight.ack(key, offsets, answer.one):
            answer.one(PutStatus.PUT_OK)

    def _ack_part_in_order(
        self, request: Request, key: OrderKey, ack: BatchAck, offsets: list[int], answer: _Answers
    ) -> None:
        for offset in offsets:
            if offset < self._offsets.query(key.group, key.topic, key.queue_id):
                continue
            answer.expect()
            result = self._orders.ack(
                key,
                queue_offset=offset,
                pop_time=ack.pop_time,
                client_host=request.connection.remote_address,
                done=answer.one,
            )
            if result is not AckResult.DONE:
                answer.one(PutStatus.PUT_OK)

    # -- another time ------------------------------------------------------------------------------

    def change_invisible_time(self, request: Request) -> None:
        """CHANGE_MESSAGE_INVISIBLETIME. RocketMQ's client reads the header of every answer before its
        code."""
        try:
            self._change(request)
        except (RequestError, PutRefusedError, ProtocolError) as error:
            request.reply(_no_change(), code=error.response_code, remark=str(error))

    def _change(self, request: Request) -> None:
        header = request.header(ChangeInvisibleTimeRequestHeader)
        handle = self._checked(header, past_end=0)
        if not 0 <= header.invisible_time <= _MAX_INVISIBLE_MS:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, f"invisibleTime[{header.invisible_time}] is not a time in ms"
            )
        if handle.is_orderly:
            self._change_in_order(request, header, handle)
            return
        self._in_flight.change_invisible_time(
            self._key(header, handle),
            header.queue_offset,
            header.invisible_time,
            partial(_answer_change, request, header.invisible_time),
        )

    def _change_in_order(
        self, request: Request, header: ChangeInvisibleTimeRequestHeader, handle: ReceiptHandle
    ) -> None:
        key = OrderKey(header.topic, header.consumer_group, header.queue_id)
        # The end of the new time is what counts: the pop keeps its own.
        invisible_time = self._now_ms() + header.invisible_time - handle.pop_time
        changed = ChangeInvisibleTimeResponseHeader(
            pop_time=handle.pop_time, invisible_time=invisible_time, revive_qid=ORDERLY_REVIVE_QUEUE_ID
        )
        if header.queue_offset < self._offsets.query(key.group, key.topic, key.queue_id):
            request.reply(_no_change())
            return
        result = self._orders.change_invisible_time(
            key,
            queue_offset=header.queue_offset,
            pop_time=handle.pop_time,
            invisible_time_ms=header.invisible_time,
            done=partial(_answer, request, header=changed),
        )
        if result is AckResult.NOT_POPPED:
            raise _not_popped(key, header.queue_offset)
        if result is AckResult.OLD:
            request.reply(changed)


class _Answers:
    """The answer to a request that waits for several results."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._waiting = 1
        self._failed: PutStatus | None = None

    def expect(self) -> None:
        """There is one more."""
        self._waiting += 1

    def one(self, status: PutStatus) -> None:
        """One is there."""
        self._waiting -= 1
        if not status.is_stored and self._failed is None:
            self._failed = status
        if not self._waiting:
            _answer(self._request, self._failed or PutStatus.PUT_OK)

    def all_sent(self) -> None:
        """No more are expected."""
        self.one(PutStatus.PUT_OK)


def _answer(
    request: Request, status: PutStatus, header: ChangeInvisibleTimeResponseHeader | None = None
) -> None:
    if status.is_stored:
        request.reply(header)
    else:
        failed = None if header is None else _no_change()
        request.reply(failed, code=status.response_code, remark=status.remark or status.name)


def _answer_change(request: Request, invisible_time: int, status: PutStatus, changed: ChangedTime) -> None:
    header = ChangeInvisibleTimeResponseHeader(
        pop_time=changed.pop_time, invisible_time=invisible_time, revive_qid=changed.revive_queue_id
    )
    _answer(request, status, header)


def _no_change() -> ChangeInvisibleTimeResponseHeader:
    return ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)


def _topic_of(ack: BatchAck) -> str:
    """The topic that the messages lie in."""
    try:
        return topic_of_kind(ack.topic, ack.consumer_group, PopTopicKind(ack.retry))
    except ValueError:
        raise ProtocolError(f"BatchAck: retry is 0, 1 or 2, not {ack.retry[:20]!r}") from None


def _illegal(problem: str) -> RequestError:
    return RequestError(ResponseCode.MESSAGE_ILLEGAL, problem)


def _not_popped(key: OrderKey, queue_offset: int) -> RequestError:
    return _illegal(
        f"{key.topic}/{key.queue_id}, offset {queue_offset}: the message is not among those that group "
        f"{key.group} was given in order last"
    )
