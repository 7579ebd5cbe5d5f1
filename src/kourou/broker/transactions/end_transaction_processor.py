"""END_TRANSACTION: a producer commits a half message or rolls it back. And RESUME_CHECK_HALF_MESSAGE.

A half ends once. An end that comes for an older copy of it (the broker has put it again meanwhile)
is an end of the newest. One that comes while another is being stored waits for what becomes of that.
Not here: what is stored (transactions.py), asking producers (transaction_check.py).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.commit_cycle import MAX_CYCLE_BYTES
from kourou.broker.storage.record_reads import RecordReads
from kourou.broker.transactions.half_message_states import ENDED, OPEN, CachedHalfMessage
from kourou.broker.transactions.half_messages import immunity_ms, resumed
from kourou.broker.transactions.transactions import Transactions
from kourou.errors import RequestError
from kourou.protocol.codes import MessageSysFlag, RequestCode, ResponseCode
from kourou.protocol.headers.transactions import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.names import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from kourou.protocol.properties import MessageConst, PropertyScanner, properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.store.log.put_status import PutStatus
from kourou.store.queue.cq_unit import UNIT
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.event_counters import EventCounters
    from kourou.broker.storage.inner_message import MessageWriter
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.store.log.commit_log import CommitLog
    from kourou.transport.cycles import Cycles
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_COMMIT: Final = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value
_ROLLBACK: Final = MessageSysFlag.TRANSACTION_ROLLBACK_TYPE.value
# An end that meets another one under way looks again after this long; a sync takes a few of them.
_LOOK_AGAIN_S: Final = 0.01

_scan: Final = PropertyScanner(
    MessageConst.PROPERTY_PRODUCER_GROUP, MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS
).values


class EndTransactionProcessor:
    """Handles commits and rollbacks by producers."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        config: LiveConfig,
        admission: Admission,
        clock_watch: ClockWatch,
        cycles: Cycles,
        log: CommitLog,
        records: RecordReader,
        requests: TaskOwner,
        writer: MessageWriter,
        events: EventCounters,
    ) -> None:
        self._events = events
        self._transactions = transactions
        self._config = config
        self._admission = admission
        self._clock_watch = clock_watch
        self._cycles = cycles
        self._log = log
        self._records = records
        self._requests = requests
        self._writer = writer
        self._resumed: set[int] = set()

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check_half_message,
        }

    # -- END_TRANSACTION -------------------------------------------------------------------------

    def end_transaction(self, request: Request) -> None:
        """END_TRANSACTION: commit or roll back. A producer that does not know is not answered."""
        header = request.header(EndTransactionRequestHeader)
        self._check_master()
        if header.commit_or_rollback not in (_COMMIT, _ROLLBACK):
            _log.debug("%s does not know yet what becomes of %s", header.producer_group, header.msg_id)
            return
        recent = self._transactions.recent.take(header.tran_state_table_offset)
        if recent is not None and self._is_meant(header, recent):
            self._put(request, header, recent)
            return
        half = self._half_nowait(header)
        if half is not None:
            self._end(request, header, half)
            return
        self._records.when_read(
            request,
            lambda reads: reads.record(header.commit_log_offset),
            lambda raw: self._end(request, header, None if raw is None else decode_record(raw)),
        )

    def _check_master(self) -> None:
        if self._admission.is_slave:
            raise RequestError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "Message store is slave mode, so end transaction is forbidden.",
            )

    def _is_meant(self, header: EndTransactionRequestHeader, half: CachedHalfMessage) -> bool:
        """Whether a half that is at hand can end now; what else is wrong its record tells."""
        return (
            half.phy_offset == header.commit_log_offset
            and half.producer_group == header.producer_group
            and self._transactions.table.state(half.queue_offset) == OPEN
        )

    def _half_nowait(self, header: EndTransactionRequestHeader) -> MessageExt | None:
        """The half, if it is where the producer says and in memory."""
        units = self._transactions.half_queue.read_units_nowait(header.tran_state_table_offset, 1)
        if not units:
            return None
        phy_offset, size, _ = UNIT.unpack(units)
        if phy_offset != header.commit_log_offset:
            return None
        raw = self._log.read_nowait(phy_offset, size)
        return None if raw is None else decode_record(raw)

    def _end(self, request: Request, header: EndTransactionRequestHeader, half: MessageExt | None) -> None:
        half = self._checked(header, half)
        if self._transactions.table.state(half.queue_offset) == OPEN:
            self._put(request, header, half)
        else:
            run_request(self._requests, request, self._end_later(request, header, half))

    async def _end_later(
        self, request: Request, header: EndTransactionRequestHeader, half: MessageExt
    ) -> None:
        """End the newest copy of a half, as soon as it is stored."""
        table, queue = self._transactions.table, self._transactions.half_queue
        while True:
            newest = table.current(half.queue_offset)
            state = table.state(newest)
            if state == ENDED:
                raise _has_ended(half)
            if state == OPEN and newest == half.queue_offset:
                self._put(request, header, half)
                return
            if state == OPEN and newest < queue.max_queue_offset:
                half = await self._read_half(newest)
            else:
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def _read_half(self, queue_offset: int) -> MessageExt:
        def read(reads: RecordReads) -> bytes | None:
            unit = reads.unit(self._transactions.half_queue, queue_offset)
            return reads.record(unit.phy_offset) if unit is not None and unit.is_message else None

        raw = await self._records.read(read)
        if raw is None:
            raise _not_found()
        return decode_record(raw)

    def _checked(self, header: EndTransactionRequestHeader, half: MessageExt | None) -> MessageExt:
        if half is None or half.topic != RMQ_SYS_TRANS_HALF_TOPIC:
            raise _not_found()
        group, immunity = _scan(properties_from_bytes(half.raw_properties))
        if immunity is not None and not header.from_transaction_check:
            self._check_time(half, immunity)
        if group != header.producer_group:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.phy_offset != header.commit_log_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        return half

    def _check_time(self, half: MessageExt, immunity: str) -> None:
        """A producer that asked for time and has used it up is asked by the broker."""
        limit_ms = immunity_ms(immunity, self._config.current.transaction_time_out)
        age_ms = self._clock_watch.age_ms(half.born_timestamp)
        if age_ms is not None and age_ms > limit_ms:
            raise RequestError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the half message is {age_ms}ms old, more than its {limit_ms}ms without a check "
                "(CHECK_IMMUNITY_TIME_IN_SECONDS): wait for the check",
            )

    def _put(
        self, request: Request, header: EndTransactionRequestHeader, half: MessageExt | CachedHalfMessage
    ) -> None:
        done = None if request.is_oneway else partial(_answer, request)
        is_commit = header.commit_or_rollback == _COMMIT
        topic = half.topic if isinstance(half, CachedHalfMessage) else _real_topic(half)
        self._admission.check_record_publish(request, topic, admitted=header.topic)
        age_ms = self._clock_watch.age_ms(half.born_timestamp) or 0
        self._events.transaction_ended(topic, age_ms, is_commit=is_commit)
        if not is_commit:
            pending_bytes = self._transactions.roll_back(half, done)
        elif isinstance(half, CachedHalfMessage):
            pending_bytes = self._transactions.commit_recent(half, done)
        else:
            pending_bytes = self._transactions.commit(half, done)
        if pending_bytes > MAX_CYCLE_BYTES:
            self._cycles.renew()

    # -- RESUME_CHECK_HALF_MESSAGE ---------------------------------------------------------------

    def resume_check_half_message(self, request: Request) -> None:
        """RESUME_CHECK_HALF_MESSAGE: have the producers asked again for a half that was given up."""
        self._check_master()
        header = request.header(ResumeCheckHalfMessageRequestHeader)
        msg_id = header.msg_id
        if not msg_id:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "msgId is missing: which half message?")
        phy_offset = parse_offset_msg_id(msg_id).phy_offset
        self._records.when_read(
            request,
            lambda reads: reads.record(phy_offset),
            lambda raw: self._resume(request, header.topic, None if raw is None else decode_record(raw)),
        )

    def _resume(self, request: Request, admitted: str | None, record: MessageExt | None) -> None:
        if record is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "can not find message by the msgId")
        if record.topic != RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the message is in {record.topic}: only one in {RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC} "
                "was given up and can be resumed",
            )
        self._admission.check_record_publish(request, _real_topic(record), admitted=admitted)
        if record.phy_offset in self._resumed:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "the half message is resumed already")
        self._resumed.add(record.phy_offset)
        self._writer.put_now(resumed(record), partial(self._answer_resumed, request, record), wait=True)

    def _answer_resumed(
        self, request: Request, record: MessageExt, status: PutStatus, _: int, __: int
    ) -> None:
        if status.is_stored:
            request.reply()
            return
        self._resumed.discard(record.phy_offset)
        request.error(
            ResponseCode.SYSTEM_ERROR, f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {status.name}"
        )


def _real_topic(half: MessageExt) -> str:
    return half.get_property(MessageConst.PROPERTY_REAL_TOPIC) or half.topic


def _answer(request: Request, status: PutStatus, _: int, __: int) -> None:
    if status.is_stored:
        request.reply()
    else:
        request.error(status.response_code, status.remark or status.name)


def _not_found() -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


def _has_ended(half: MessageExt) -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_ERROR,
        f"the transaction of half message {half.queue_offset} has ended already, "
        "or its end is left to a check",
    )
