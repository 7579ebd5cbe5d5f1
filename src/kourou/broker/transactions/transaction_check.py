"""TransactionCheck: asks producers about half messages that were not ended.

Every `transactionCheckInterval` all open halves are looked at in order, until one is too young. One
that is due is put again behind the others, and some live producer of its group is asked
(CHECK_TRANSACTION_STATE, one-way); it answers by END_TRANSACTION. After `transactionCheckMax` questions, or
when it is older than the log keeps, a half is given up: a hook may say how it ends, else it goes to
TRANS_CHECK_MAX_TIME_TOPIC.
TransactionsPart has the broker recover transactions, end them for producers, and check those that none ends.
Not here: what is stored (transactions.py), when a half is due (half_messages.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.broker.hooks import GivenUpTransaction, TransactionEnd
from kourou.broker.part import BrokerPart
from kourou.broker.settings import LiveConfig
from kourou.broker.storage.commit_cycle import MAX_CYCLE_BYTES
from kourou.broker.storage.inner_message import InnerMessage
from kourou.broker.storage.record_reads import RecordReads
from kourou.broker.transactions.end_transaction_processor import EndTransactionProcessor
from kourou.broker.transactions.half_message_states import ENDED, OPEN
from kourou.broker.transactions.half_messages import (
    NextStep,
    TransactionTimes,
    check_times,
    property_number,
    real_place,
    without_mark,
)
from kourou.broker.transactions.transactions import Transactions
from kourou.errors import ProtocolError, RemotingError, StorageError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.transactions import CheckTransactionStateRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import offset_msg_id
from kourou.protocol.names import RMQ_SYS_TRANS_HALF_TOPIC
from kourou.protocol.properties import MessageConst, properties_to_bytes
from kourou.protocol.record import decode_record, encode_record
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner
from kourou.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.admission import Admission
    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.groups.producers import ProducerManager
    from kourou.broker.hooks import BrokerHooks
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.store.log.log_appender import LogAppender
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

# As many are looked at between two looks at everything else the broker does.
_HALVES_PER_TURN: Final = 32
_ROUND_MS: Final = 60_000
_PRODUCERS_TRIED: Final = 3
_OF_THE_MESSAGE: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class TransactionCheck:
    """Looks after the halves of one broker."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        config: LiveConfig,
        producers: ProducerManager,
        admission: Admission,
        clock_watch: ClockWatch,
        cycles: Cycles,
        appender: LogAppender,
        records: RecordReader,
        hooks: BrokerHooks,
        store_host: bytes,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._transactions = transactions
        self._config = config
        self._producers = producers
        self._admission = admission
        self._clock_watch = clock_watch
        self._cycles = cycles
        self._appender = appender
        self._records = records
        self._hooks = hooks
        self._store_host = store_host
        self._monotonic_ms = monotonic_ms
        self._not_asked: dict[str, list[str]] = {}
        """Half messages of this round without a producer to ask, by group."""

    def start(self, tasks: TaskOwner) -> None:
        """Begin to look. A slave does not: its master does."""
        if not self._config.current.is_slave:
            tasks.start(self._run(), "check-transactions")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._config.current.transaction_check_interval / 1000)
            try:
                await self.check()
            except StorageError as error:
                _log.warning("half messages are not checked: %s", error)

    async def check(self) -> None:
        """Look at all open halves, for a minute at most."""
        table, queue = self._transactions.table, self._transactions.half_queue
        start_ms = self._monotonic_ms()
        times = TransactionTimes.of(self._config.current, queue.max_queue_offset)
        self._transactions.settle()
        queue_offset = table.half_queue_offset
        while self._monotonic_ms() - start_ms <= _ROUND_MS:
            halves = self._next_open(queue_offset, queue.max_queue_offset)
            if not halves or not await self._look_at(halves, times):
                break
            queue_offset = halves[-1] + 1
            await asyncio.sleep(0)
        self._transactions.settle()
        self._report_not_asked()

    def _next_open(self, queue_offset: int, end_queue_offset: int) -> list[int]:
        table = self._transactions.table
        halves: list[int] = []
        while len(halves) < _HALVES_PER_TURN:
            queue_offset = table.next_open(queue_offset)
            if queue_offset >= end_queue_offset:
                break
            halves.append(queue_offset)
            queue_offset += 1
        return halves

    async def _look_at(self, halves: list[int], times: TransactionTimes) -> bool:
        """Do with each what is due, and wait until that is stored; False: no need to look further."""
        records = await self._records.read(lambda reads: self._read(reads, halves))
        turn = _Turn()
        goes_on = True
        try:
            for queue_offset, raw in zip(halves, records, strict=True):
                # It may have ended while it was read.
                if self._transactions.table.state(queue_offset) != OPEN:
                    continue
                if raw is None:
                    _log.warning("half message %d is gone from the log and was never ended", queue_offset)
                    self._transactions.table.skip(queue_offset)
                elif not self._take_step(decode_record(raw), times, turn):
                    goes_on = False
                    break
        except PutRefusedError as refusal:
            _log.warning("half messages are not checked: %s", refusal)
            goes_on = False
        return await turn.wait_stored() and goes_on

    def _read(self, reads: RecordReads, halves: list[int]) -> list[bytes | None]:
        units = [reads.unit(self._transactions.half_queue, queue_offset) for queue_offset in halves]
        return [
            reads.record(unit.phy_offset) if unit is not None and unit.is_message else None for unit in units
        ]

    # -- one half --------------------------------------------------------------------------------

    def _take_step(self, half: MessageExt, times: TransactionTimes, turn: _Turn) -> bool:
        """Do what is due; False when this one is too young."""
        step = times.next_step(half, self._clock_watch.age_ms(half.born_timestamp))
        if step is NextStep.STOP:
            return False
        try:
            self._put_step(half, step, turn)
        except PutRefusedError as refusal:
            if refusal.status not in _OF_THE_MESSAGE:
                raise
            self._leave(half, step, refusal, turn)
        if self._appender.pending_bytes > MAX_CYCLE_BYTES:
            self._cycles.renew()
        return True

    def _put_step(self, half: MessageExt, step: NextStep, turn: _Turn) -> None:
        if self._is_ended_copy(half):
            self._transactions.roll_back(half, turn.done)
        elif step is NextStep.GIVE_UP:
            self._give_up(half, turn)
        elif step is NextStep.PUT_AGAIN:
            self._transactions.put_again(half, is_checked=False, done=turn.done)
        else:
            self._check(half, turn)
        turn.waiting += 1

    def _leave(self, half: MessageExt, step: NextStep, refusal: PutRefusedError, turn: _Turn) -> None:
        """A half that the store would take no more, since `maxMessageSize` was lowered: it keeps its place,
        and those behind it get their turn. When its time is over it is dropped."""
        _log.error("half message %s cannot be put again: %s", half.msg_id, refusal)
        if step is NextStep.GIVE_UP:
            self._transactions.roll_back(half, turn.done)
            turn.waiting += 1

    def _is_ended_copy(self, half: MessageExt) -> bool:
        """Whether this is a copy made by an Apache broker, of a half that has ended."""
        first = property_number(half, MessageConst.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
        table = self._transactions.table
        return first is not None and first >= table.half_queue_offset and table.state(first) == ENDED

    def _check(self, half: MessageExt, turn: _Turn) -> None:
        def done(status: PutStatus, phy_offset: int, queue_offset: int) -> None:
            if status.is_stored:
                self._ask(half, copy, phy_offset, queue_offset)
            turn.done(status, phy_offset, queue_offset)

        copy = self._transactions.put_again(half, is_checked=True, done=done)

    def _give_up(self, half: MessageExt, turn: _Turn) -> None:
        properties = half.properties
        context = GivenUpTransaction(
            topic=properties.get(MessageConst.PROPERTY_REAL_TOPIC, ""),
            producer_group=properties.get(MessageConst.PROPERTY_PRODUCER_GROUP, ""),
            msg_id=half.msg_id,
            body=half.stored_body,
            properties=dict(properties),
            born_timestamp=half.born_timestamp,
            check_times=check_times(half) or 0,
        )
        end = self._hooks.decide_given_up(context)
        _log.warning("half message %s of %s is given up (%s)", half.msg_id, context.topic, end)
        try:
            if end is TransactionEnd.COMMIT:
                self._transactions.commit(half, turn.done)
            elif end is TransactionEnd.ROLLBACK:
                self._transactions.roll_back(half, turn.done)
            else:
                self._transactions.give_up(half, turn.done)
        except ProtocolError as error:
            _log.warning("half message %s cannot be committed: %s", half.msg_id, error)
            self._transactions.give_up(half, turn.done)

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, half: MessageExt, copy: InnerMessage, phy_offset: int, queue_offset: int) -> None:
        group = half.properties.get(MessageConst.PROPERTY_PRODUCER_GROUP, "")
        try:
            command = self._question(half, copy, phy_offset, queue_offset)
        except ProtocolError as error:
            _log.warning("no producer can be asked about half message %s: %s", half.msg_id, error)
            return
        topic, _ = real_place(copy.properties)
        for _ in range(_PRODUCERS_TRIED):
            # A producer group is joined freely: only who may send to the topic is shown its messages.
            channel = self._producers.available_channel(
                group, lambda connection: self._admission.may_publish(connection, topic)
            )
            if channel is None:
                self._not_asked.setdefault(group, []).append(half.msg_id)
                return
            try:
                channel.connection.send_oneway(command)
            except RemotingError as error:
                _log.warning("cannot ask producer %s about a half message: %s", channel, error)
            else:
                return

    def _report_not_asked(self) -> None:
        """One line for each group and round, however many half messages it has."""
        for group, msg_ids in self._not_asked.items():
            _log.warning(
                "no producer of %s is online to check %s; the last is %s",
                group,
                counted(len(msg_ids), "half message"),
                msg_ids[-1],
            )
        self._not_asked.clear()

    def _question(
        self, half: MessageExt, copy: InnerMessage, phy_offset: int, queue_offset: int
    ) -> RemotingCommand:
        """CHECK_TRANSACTION_STATE; the body is the half's record, with the place where it goes."""
        properties = without_mark(copy).properties
        topic, queue_id = real_place(properties)
        shown = msgspec.structs.replace(
            half,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            phy_offset=phy_offset,
            raw_properties=properties_to_bytes(properties),
            _properties=None,
        )
        uniq_key = half.properties.get(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        header = CheckTransactionStateRequestHeader(
            topic=RMQ_SYS_TRANS_HALF_TOPIC,
            tran_state_table_offset=queue_offset,
            commit_log_offset=phy_offset,
            msg_id=uniq_key,
            transaction_id=uniq_key,
            offset_msg_id=offset_msg_id(self._store_host, phy_offset),
        )
        command = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(shown))
        command.ext_fields = {**(command.ext_fields or {}), "bname": self._config.current.broker_name or ""}
        return command


class _Turn:
    """The puts of one turn, waited for together."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self._is_stored = True
        self.waiting = 0

    def done(self, status: PutStatus, _: int, __: int) -> None:
        """One of them is stored, or will not be."""
        self.waiting -= 1
        self._is_stored = self._is_stored and status.is_stored
        self._told.set()

    async def wait_stored(self) -> bool:
        """Wait for all; whether all are stored."""
        while self.waiting:
            self._told.clear()
            await self._told.wait()
        return self._is_stored


class TransactionsPart(BrokerPart):
    """The first part that may store something: what a killed broker left undone comes right behind it."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        transactions: Transactions,
        ends: EndTransactionProcessor,
        check: TransactionCheck,
    ) -> None:
        self._config = config
        self._transactions = transactions
        self._ends = ends
        self._check = check

    def processors(self) -> Mapping[int, Processor]:
        return self._ends.processors()

    def recover(self) -> None:
        self._transactions.recover(is_slave=self._config.current.is_slave)

    async def start(self, tasks: TaskOwner) -> None:
        self._check.start(tasks)
