"""FastSendPath: ordinary sends of one commit cycle, put all at once by the compiled kernel (store/kernel.py).

Sends are gathered as they come, connection by connection, as the bytes that were read, and put when the cycle
ends; so one call takes what 64 connections have sent, as it does what came in one read. Before a connection's
request of another kind is handled, what it has sent before is put.
Ordinary is what needs no decision: a message for a known topic, with an id, without a delay or a transaction,
or a batch, of whose messages none is part of a transaction.
With access control only what the kernel has verified is ordinary: signed by an account that may send to the
topic (signed_sends.py).
The first one that is not, and what follows it on its connection, goes the way of all requests
(send_message_processor.py); so does everything where the kernel is not in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kourou.broker.connection_state import ConnectionState
from kourou.broker.send.send_answer import SendAnswer
from kourou.broker.send.sent_properties import SLOW_PATH_PROPERTIES
from kourou.broker.storage.commit_cycle import MAX_CYCLE_BYTES
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.layout import HOST_V4_BYTES
from kourou.store.kernel import EncodedSends, Kernel, SendsEnd, SendSetup, SentPiece
from kourou.store.log.put_batch import RunRoom
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.transport.connection import Connection

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.settings import KernelStatus
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.producers.producer_table import ProducerTable
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

_PUT_OK: Final = PutStatus.PUT_OK
# Each run scans all that is left. After so many runs that stop at the slow path, the kernel is not tried
# again in this cycle.
_MAX_RUNS: Final = 8
_BEGIN: Final[SendsEnd] = (0, 0, 0)

Sender: TypeAlias = tuple[Connection, list[SentPiece], bytes]
"""A connection, what it has sent, and its host."""


class FastSendPath:
    """Takes sends for one broker. `targets` are the topics that may be sent to without a look."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        status: KernelStatus,
        admission: Admission,
        topics: TopicConfigManager,
        cycles: Cycles,
        commit_cycle: CommitCycle,
        appender: LogAppender,
        queues: ConsumeQueues,
        producers: ProducerTable,
        targets: Mapping[str, Any],
        own_properties: bytes,
        answer: SendAnswer,
        store_host: bytes,
    ) -> None:
        self._status = status
        self._admission = admission
        self._topic_configs = topics.table
        self._cycles = cycles
        self._appender = appender
        self._queues = queues
        self._producers = producers
        self._windows = producers.windows
        self._sends_end = kernel.sends_end
        self.room = kernel.room
        self._encode_sends = kernel.encode_sends
        self._signing_state = kernel.signing_state
        self._targets = targets
        self._answer = answer
        self._setup: SendSetup = (
            kernel.send_setup(own_properties, SLOW_PATH_PROPERTIES, answer.kernel_templates, store_host),
            self._new_queue,
        )
        # Called for each run that is answered: messages, status, the time of its commit cycle.
        self.on_stored: Callable[[int, PutStatus, int], None] | None = None
        self._gathered: dict[Connection, Sender] = {}
        self._gathered_bytes = 0
        self._commit_cycle = commit_cycle

    # -- gathering -------------------------------------------------------------------------------

    def collect(self, connection: Connection, data: bytes | memoryview, position: int) -> int:
        """Gather the sends that `data` has from `position` on; where they end."""
        state: ConnectionState = connection.state
        # The first send of a connection takes the slow path, which records the host.
        if len(state.born_host) != HOST_V4_BYTES:
            return position
        signed = self._admission.signed_sends
        if signed is not None and not signed.concerns(connection):
            return position
        end = self._sends_end(data, position, connection.max_frame_bytes)
        if end == position:
            return position
        cycles = self._cycles
        if not cycles.is_open:
            cycles.open()
        sender = self._gathered.get(connection)
        if sender is not None:
            sender[1].append((data, position, end))
        else:
            self._commit_cycle.fast_sends = self
            self._gathered[connection] = connection, [(data, position, end)], state.born_host
        # All that was read is held with it. (Of small messages in batches the records are larger than that.)
        self._gathered_bytes += len(data)
        if self._gathered_bytes > MAX_CYCLE_BYTES:
            cycles.renew()
        return end

    def finish(self, connection: Connection) -> None:
        """Put what the connection has sent, since something else is to follow."""
        if connection in self._gathered:
            self._commit_cycle.fast_sends = None
            self.put()
            if self._appender.pending_bytes > MAX_CYCLE_BYTES:
                self._cycles.renew()

    # -- putting ---------------------------------------------------------------------------------

    def put(self, *, is_alone: bool = False) -> EncodedSends | None:
        """Leave the collected sends pending; or return them as a run, if that may be alone in its commit
        cycle and all of them are ordinary."""
        senders = list(self._gathered.values())
        self._gathered.clear()
        self._gathered_bytes = 0
        room = self._appender.lone_run_room() if is_alone else None
        if room is None:
            self._put(senders, self._put_run(senders))
            return None
        run = self._encode(senders, room)
        # Windows of idempotent producers are taken back with what is pending only.
        if run is not None and run[0][0] == len(senders) and not run[6]:
            return run
        self._put(senders, _BEGIN if run is None else self._pend(run))
        return None

    def _put(self, senders: list[Sender], end: SendsEnd) -> None:
        """Put the sends behind `end`: the kernel has taken those before it."""
        runs = 1
        while end[0] < len(senders):
            senders = self._put_slow_path(senders, end)
            end = self._put_run(senders) if runs < _MAX_RUNS else _BEGIN
            runs += 1

    @staticmethod
    def _put_slow_path(senders: list[Sender], end: SendsEnd) -> list[Sender]:
        """The sends up to `end` are put: have the one behind them handled, with what follows it on its
        connection. The senders behind that."""
        done, pieces_done, position = end
        connection, pieces, _ = senders[done]
        data, start, piece_end = pieces[pieces_done]
        rest = [(data, max(start, position), piece_end), *pieces[pieces_done + 1 :]]
        decoder = FrameDecoder(connection.max_frame_bytes)
        connection.handle_singly([frame for piece in rest for frame in decoder.feed(_bytes_of(piece))])
        return senders[done + 1 :]

    def _put_run(self, senders: list[Sender]) -> SendsEnd:
        """Put the sends up to the first that is not ordinary; where they end."""
        room = self._appender.run_room()
        run = None if room is None else self._encode(senders, room)
        return _BEGIN if run is None else self._pend(run)

    def _pend(self, run: EncodedSends) -> SendsEnd:
        """Leave a run pending; where it ends."""
        end, messages, records, hashed_keys, answers, grown, undo = run
        if undo:
            self._windows.undo.append(undo)
        # Of what was sent, nothing is kept for as long as senders wait for a sync.
        done = partial(self.answer, answers, messages, self._appender.cycle_ms)
        self._appender.put_run(messages, records, hashed_keys, grown, done)
        return end

    def _encode(self, senders: list[Sender], room: RunRoom) -> EncodedSends | None:
        """A run of the sends up to the first that is not ordinary; None: it is the first."""
        admission = self._admission
        if not (self._status.current.kernel is not None and admission.is_fast_path_open):
            return None
        ruling, signed, blocks = admission.ruling, admission.signed_sends, self._windows.blocks
        try:
            return self._encode_sends(
                senders,
                self._setup,
                self._targets,
                self._topic_configs,
                ruling,
                None if signed is None else signed.accounts_under(ruling, self._signing_state),
                self._queues.by_topic,
                (self._producers.slots, blocks, self._windows.begin_run() if blocks else 0),
                *room,
            )
        except Exception:
            # It has put nothing: the general way takes what it would have taken.
            _log.exception("the compiled kernel failed; Python code replaces it until the next start")
            self._status.fail("a send")
            return None

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue of a known topic, made ready for its first message."""
        queue = self._queues.get(topic, queue_id)
        try:
            self._appender.prepare(queue)
        except PutRefusedError:
            return None
        return queue

    # -- answering -------------------------------------------------------------------------------

    def answer(
        self,
        answered: Sequence[tuple[Any, bytes]],
        messages: int,
        cycle_ms: int,
        status: PutStatus,
        _: int = 0,
        __: int = 0,
    ) -> None:
        """Answer the senders of a run; all of them share one fate. The answers are for the best one. Never
        raises."""
        try:
            for connection, answers in answered:
                if status is not _PUT_OK:
                    frames = FrameDecoder().feed(answers)
                    answers = b"".join(self._answer.changed(frame, status) for frame in frames)
                connection.send_at_end(answers)
            if self.on_stored is not None:
                self.on_stored(messages, status, cycle_ms)
        except Exception:
            _log.exception("cannot notify the senders of a run of %s", status.name)


def _bytes_of(piece: SentPiece) -> bytes:
    data, start, end = piece
    return bytes(data[start:end])
