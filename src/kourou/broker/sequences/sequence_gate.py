"""SequenceGate: decides whether a message of an idempotent producer is stored, and answers repeats.

The compiled kernel decides the common case itself, from the same windows (fast_send_path.py): a new message
of a producer that it knows. Everything else comes here.

A repeat is answered with its original. While that cannot be found, it may be on its way to the disk or to a
slave: the repeat waits until all that was put before it is decided. Then the original is there, or it could
not be stored, and the repeat is stored in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kourou.broker.sequences.originals import Originals, Place
from kourou.errors import DiskFullError, ProtocolError, RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.producer_sequence import MAX_IN_FLIGHT, ProducerSequence, parse_sequence
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.producers.producer_table import ProducerTable, SequenceRuling
from kourou.transport.dispatcher import run_request

if TYPE_CHECKING:
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.store.dispatcher import Dispatcher
    from kourou.store.log.log_appender import LogAppender
    from kourou.transport.cycles import Cycles
    from kourou.transport.request import Request
    from kourou.transport.tasks import TaskOwner

_ATTEMPTS: Final = 3
_LOOK_S: Final = 0.1
_REFUSALS: Final = {
    SequenceRuling.UNKNOWN_PRODUCER: (
        ResponseCode.KOUROU_UNKNOWN_PRODUCER,
        "producer {id} is not known: it was not opened on this broker, or has expired; open it again",
    ),
    SequenceRuling.FENCED: (
        ResponseCode.KOUROU_PRODUCER_FENCED,
        "producer {id}, epoch {epoch}: a newer program has opened this name, with epoch {current}; "
        "end one of the two, or give it another name",
    ),
    SequenceRuling.UNKNOWN_EPOCH: (
        ResponseCode.KOUROU_UNKNOWN_EPOCH,
        "producer {id}: it was never opened with epoch {epoch}, the present one is {current}",
    ),
    SequenceRuling.TOO_OLD: (
        ResponseCode.KOUROU_SEQUENCE_TOO_OLD,
        "producer {id}, {topic}, queue {queue_id}: sequence {sequence} is {window} or more behind the "
        "highest; whether it is stored is no longer known",
    ),
    SequenceRuling.JUMP: (
        ResponseCode.KOUROU_SEQUENCE_JUMP,
        "producer {id}, {topic}, queue {queue_id}: sequence {sequence} is more than {window} ahead of the "
        "highest that is stored; messages in between are missing",
    ),
}


class SequenceGate:
    """The gate of one broker."""

    def __init__(
        self,
        *,
        table: ProducerTable,
        originals: Originals,
        appender: LogAppender,
        dispatcher: Dispatcher,
        commit_cycle: CommitCycle,
        cycles: Cycles,
        requests: TaskOwner,
    ) -> None:
        self._table = table
        # Of the windows themselves, since it is called for each message. False: `put_once` has to decide.
        self.note_if_next = table.windows.note_if_next
        self.undo_note = table.windows.undo_note
        self._originals = originals
        self._appender = appender
        self._dispatcher = dispatcher
        self._commit_cycle = commit_cycle
        self._cycles = cycles
        self._requests = requests

    def put_once(
        self,
        request: Request,
        value: str,
        place: Place,
        put: Callable[[], None],
        answer: Callable[[MessageExt], None],
    ) -> None:
        """Have a message put whose property is `value`; if it is a repeat, `answer` with the original.
        RequestError: neither; what `put` raises: it is not put."""
        sent = read_sequence(value)
        if self.is_new(sent, place.topic, place.queue_id):
            self._put_new(sent, place, put)
        elif not request.is_oneway:
            run_request(self._requests, request, self._answer_repeat(sent, place, put, answer))

    def _put_new(self, sent: ProducerSequence, place: Place, put: Callable[[], None]) -> None:
        undo_count = self.begin()
        # Before it is put: that may end the commit cycle.
        self.note(sent, place.topic, place.queue_id)
        try:
            put()
        except BaseException as error:
            self.take_back(undo_count)
            check_refusal(error)
            raise

    def is_new(self, sent: ProducerSequence, topic: str, queue_id: int) -> bool:
        """Whether a message is to be stored; else it is a repeat. RequestError: neither."""
        ruling = self._table.rule(sent, topic, queue_id)
        if ruling is SequenceRuling.STORE:
            return True
        if ruling is SequenceRuling.REPEAT:
            return False
        raise self._refusal(ruling, sent, topic, queue_id)

    def begin(self) -> int:
        """Before messages are noted that may not be put after all: what `take_back` needs."""
        self._table.windows.begin_run()
        return len(self._table.windows.undo)

    def next_sequence(self, identity: str, topic: str, queue_id: int) -> int | None:
        """The sequence behind the highest of a producer in a queue; None if it has stored nothing there."""
        return self._table.next_sequence(identity, topic, queue_id)

    def note_next(self, identity: str, topic: str, queue_id: int, count: int) -> None:
        """The `count` messages from `next_sequence` on are about to be put, as with `note`."""
        appender = self._appender
        self._table.note_next(identity, topic, queue_id, count, appender.end_phy_offset, appender.cycle_ms)

    def note(self, sent: ProducerSequence, topic: str, queue_id: int) -> None:
        """A new message is about to be put. From then on it counts, unless its commit cycle cannot be
        written."""
        appender = self._appender
        self._table.note(sent, topic, queue_id, appender.end_phy_offset, appender.cycle_ms)

    def take_back(self, undo_count: int) -> None:
        """What was noted since `begin` is not put."""
        self._table.windows.rewind(undo_count)

    def _refusal(
        self, ruling: SequenceRuling, sent: ProducerSequence, topic: str, queue_id: int
    ) -> RequestError:
        self._table.refused[ruling] += 1
        code, text = _REFUSALS[ruling]
        producer = self._table.producers.get(sent.producer_id)
        return RequestError(
            code,
            text.format(
                id=sent.producer_id,
                epoch=sent.epoch,
                current=-1 if producer is None else producer.epoch,
                topic=topic,
                queue_id=queue_id,
                sequence=sent.sequence,
                window=MAX_IN_FLIGHT,
            ),
        )

    # -- repeats ---------------------------------------------------------------------------------

    async def _answer_repeat(
        self,
        sent: ProducerSequence,
        place: Place,
        put: Callable[[], None],
        answer: Callable[[MessageExt], None],
    ) -> None:
        original = await self.original(sent, place)
        # Responses and puts belong to a cycle.
        self._cycles.open()
        if original is not None:
            answer(original)
            return
        self._put_new(sent, place, put)

    async def original(self, sent: ProducerSequence, place: Place) -> MessageExt | None:
        """The original of a repeat, as soon as it is decided; None if it could not be stored.
        RequestError: it is still undecided, or gone."""
        for _ in range(_ATTEMPTS):
            found = await self._originals.find(sent, place)
            end = self._appender.end_phy_offset
            is_decided = True
            if found is None:
                is_decided = await self._decided(end)
                found = await self._originals.find(sent, place)
            if found is not None:
                self._table.repeats += 1
                return found
            # Also for what is not to be answered as a repeat: a newer program may have been opened.
            if self.is_new(sent, place.topic, place.queue_id):
                return None
            if self._appender.is_fenced:
                status = PutStatus.SERVICE_NOT_AVAILABLE
                raise RequestError(ResponseCode(status.response_code), status.remark)
            if not is_decided:
                raise RequestError(
                    ResponseCode.SYSTEM_BUSY,
                    f"{_named(sent, place)} is not yet as durable as it has to be; send it again",
                )
            # Another repeat may have put it meanwhile, in place of an original that could not be written.
        raise RequestError(
            ResponseCode.KOUROU_SEQUENCE_TOO_OLD,
            f"{_named(sent, place)} was stored, and its message has been deleted since",
        )

    async def _decided(self, end_phy_offset: int) -> bool:
        """Wait until all that was put before `end_phy_offset` is visible, or has failed; False: it takes too
        long."""
        commit_cycle, dispatcher = self._commit_cycle, self._dispatcher
        published = asyncio.Event()

        def note(*_: object) -> None:
            published.set()

        timeout_ms = commit_cycle.sync_flush_timeout_ms + commit_cycle.slave_timeout_ms
        # What this iteration of the loop has put is written at its end.
        await asyncio.sleep(0)
        dispatcher.on_publish.append(note)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                while dispatcher.dispatched_phy_offset < end_phy_offset and (
                    self._appender.pending_bytes or commit_cycle.is_waiting
                ):
                    published.clear()
                    # A write that fails publishes nothing.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(published.wait(), _LOOK_S)
        except TimeoutError:
            return False
        finally:
            dispatcher.on_publish.remove(note)
        return True


def check_refusal(error: BaseException) -> None:
    """RequestError in place of a refusal before anything was put, with a code that says so: those of RocketMQ
    leave it open whether a broker that fails has the message."""
    if isinstance(error, PutRefusedError) and error.status is PutStatus.SERVICE_NOT_AVAILABLE:
        is_full = isinstance(error.__cause__, DiskFullError)
        code = ResponseCode.KOUROU_DISK_FULL if is_full else ResponseCode.KOUROU_NOT_STORED
        raise RequestError(code, str(error)) from error


def _named(sent: ProducerSequence, place: Place) -> str:
    return f"producer {sent.producer_id}, {place.topic}, queue {place.queue_id}: sequence {sent.sequence}"


def read_sequence(value: str) -> ProducerSequence:
    """The sequence that a message carries; RequestError if it is malformed."""
    try:
        return parse_sequence(value)
    except ProtocolError as error:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None
