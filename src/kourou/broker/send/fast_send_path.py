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
            own_properties,
            SLOW_PATH_PROPERTIES,
            answer.kernel_templates,
            store_host,
            self._new_queue,
        )
        # Called for each run that is answered: messages, status, the time of its commit cycle.
        self.on_stored: Callable[[int, PutStatus, int], None] | None = None
        self._gathered: dict[Connection, Sender] = {}
        self._gathered_bytes = 0
        self._before_write = commit_cycle.before_write

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
        cycles.open()
        sender = self._gathered.get(connection)
        if sender is not None:
            sender[1].append((data, position, end))
        else:
            if not self._gathered:
                self._before_write.append(self.put)
            self._gathered[connection] = connection, [(data, position, end)], state.born_host
        # All that was read is held with it. (Of small messages in batches the records are larger than that.)
        self._gathered_bytes += len(data)
        if self._gathered_bytes > MAX_CYCLE_BYTES:
            cycles.renew()
        return end

    def finish(self, connection: Connection) -> None:
        """Put what the connection has sent, since something else is to follow."""
        if connection in self._gathered:
            # Collected again, it adds itself again: a cycle may mix thousands of sends with other requests.
            self._before_write.remove(self.put)
            self.put()
            if self._appender.pending_bytes > MAX_CYCLE_BYTES:
                self._cycles.renew()

    # -- putting ---------------------------------------------------------------------------------

    def put(self) -> None:
        """Put the collected sends into the log."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        self._gathered_bytes = 0
        admission = self._admission
        senders = list(gathered.values())
        runs = 0
        while senders:
            end = _BEGIN
            is_usable = self._status.current.kernel is not None
            if runs < _MAX_RUNS and is_usable and admission.is_fast_path_open:
                end = self._put_run(senders)
                runs += 1
            if end[0] == len(senders):
                return
            senders = self._put_slow_path(senders, end)

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
        appender = self._appender
        room = appender.run_room()
        if room is None:
            return _BEGIN
        encoded = self._encode(senders, room)
        if encoded is None:
            return _BEGIN
        end, messages, records, hashed_keys, answers, grown, undo = encoded
        if undo:
            self._windows.undo.append(undo)
        # Of what was sent, nothing is kept for as long as senders wait for a sync.
        done = partial(self._stored, answers, messages, room[2])
        appender.put_run(messages, records, hashed_keys, grown, done)
        return end

    def _encode(self, senders: list[Sender], room: RunRoom) -> EncodedSends | None:
        ruling, signed = self._admission.ruling, self._admission.signed_sends
        try:
            return self._encode_sends(
                senders,
                self._setup,
                self._targets,
                self._topic_configs,
                ruling,
                None if signed is None else signed.accounts_under(ruling, self._signing_state),
                self._queues.by_topic,
                (self._producers.slots, self._windows.blocks, self._windows.begin_run()),
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

    def _stored(
        self,
        answered: Sequence[tuple[Any, bytes]],
        messages: int,
        cycle_ms: int,
        status: PutStatus,
        _: int,
        __: int,
    ) -> None:
        """Answer the senders; all of them share one fate. The answers are for the best one."""
        if self.on_stored is not None:
            self.on_stored(messages, status, cycle_ms)
        for connection, answers in answered:
            if status is not _PUT_OK:
                frames = FrameDecoder().feed(answers)
                answers = b"".join(self._answer.changed(frame, status) for frame in frames)
            connection.send(answers)


def _bytes_of(piece: SentPiece) -> bytes:
    data, start, end = piece
    return bytes(data[start:end])
