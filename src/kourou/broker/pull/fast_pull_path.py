"""FastPullPath: ordinary pulls of one read, answered together by the compiled kernel (store/kernel.py).

Ordinary is what needs no decision: a pull of messages that are in memory, for a group and a topic of which is
known what the group may pull, by tags or all (pull_targets.py). Known is only what was decided by
the admission gate under the current ruling; the first pull after a change is decided anew.
Any other pull is handled as all requests are (pull_message_processor.py), those after it by the kernel again.
So is every pull while something has to see each: a check of requests, a hook, the limits of accounts; while a
reset or an overflow policy moves offsets; on a slave; and where the kernel is not in use.
Answers leave at once, in the order of the pulls: the kernel writes them to the socket, straight from the log,
unless something else waits to be written there. What the socket does not take, and answers to peers with TLS,
are written when the cycle ends.
Old messages are left to a thread while messages are put, and where they are not in memory (cold_answers.py);
answers of one connection may leave in another order than its pulls came, then.
What is known is kept across reads: targets with each connection (kernel_targets.py), windows of the log for a
moment (pull_places.py). Offsets that pulls commit are recorded at once, all else later (pull_notes.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.pull.cold_answers import ColdAnswers
from kourou.broker.pull.hand_over_turns import HandOverTurns
from kourou.broker.pull.kernel_targets import KernelTargets
from kourou.broker.pull.pull_answer import KERNEL_TEMPLATES
from kourou.broker.pull.pull_notes import PullNotes
from kourou.broker.pull.pull_places import PullPlaces
from kourou.errors import KourouError
from kourou.protocol.frame import FrameDecoder
from kourou.store.kernel import Kernel, PullLimits, PullSetup, pull_numbers
from kourou.store.log.log_regions import REGION_BYTES
from kourou.store.queue.unit_blocks import BLOCK_UNITS, CHUNK_UNITS
from kourou.store.read.transfer_limits import MAX_MESSAGES, TransferLimits

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.connection_state import ConnectionState
    from kourou.broker.hooks import BrokerHooks
    from kourou.broker.pull.cold_pulls import ColdReadThrottle
    from kourou.broker.pull.pull_message_processor import PullMessageProcessor
    from kourou.broker.settings import KernelStatus, LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.config.broker import BrokerConfig
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.connection import Connection
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

_RUN_BYTES: Final = 1024 * 1024
"""A run ends with the record that exceeds this: a peer that does not read is noticed between runs."""
_MAX_SINGLE: Final = 16
"""After so many pulls that the kernel did not answer, it is not tried again in this read."""
_MAX_LATER: Final = 16
"""Pulls of one connection that wait for time to read old messages; others wait in its queue."""
_LENGTH_BYTES: Final = 4
_NO_FD: Final = -1


class FastPullPath:
    """Answers pulls for one broker. `finish_sends` puts what a connection has sent before."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        status: KernelStatus,
        config: LiveConfig,
        admission: Admission,
        hooks: BrokerHooks,
        processor: PullMessageProcessor,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        log: CommitLog,
        queues: ConsumeQueues,
        cold_reads: ColdReadThrottle,
        cycles: Cycles,
        now_ms: Callable[[], int],
        finish_sends: Callable[[Connection], None],
    ) -> None:
        self._pulls_end = kernel.pulls_end
        self._answer_pulls = kernel.answer_pulls
        self._status = status
        self._config = config
        self._admission = admission
        self._hooks = hooks
        self._processor = processor
        self._offsets = offsets
        self._store_log = log
        self._by_topic = queues.by_topic
        self._cold_reads = cold_reads
        self._cycles = cycles
        self._now_ms = now_ms
        self._now_s = asyncio.get_running_loop().time
        self._finish_sends = finish_sends
        self.notes = PullNotes(stats, offsets)
        self._turns = HandOverTurns(cycles, cold_reads.is_sending)
        # None where there is no other core for it.
        self._cold_answers: ColdAnswers | None = None
        if cold_reads.may_use_thread:
            self._cold_answers = ColdAnswers(
                kernel,
                log=log,
                targets=processor.targets,
                notes=self.notes,
                now_ms=now_ms,
                handle_singly=_handle_singly,
            )
        self._places = PullPlaces(log, cold_reads, self._turns, self._cold_answers)
        self._kernel_targets = KernelTargets(processor.targets, config)
        self._follow(config.current)

    def collect(self, connection: Connection, data: bytes, position: int) -> int:
        """Answer the pulls that `data` has from `position` on; where those end that are handled."""
        state: ConnectionState = connection.state
        if state.reads_old and self._turns.is_waited_for:
            return self._wait_for_turn(connection, data, position)
        if not self._is_open:
            return position
        if not state.reads_old or not self._cold_reads.is_sending():
            if self._cycles.is_open:
                self._finish_sends(connection)
            return self._collect(connection, data, position)
        if not self._turns.is_free:
            return self._wait_for_turn(connection, data, position)
        try:
            self._finish_sends(connection)
            return self._collect_in_turn(connection, data, position)
        finally:
            self._turns.spend()

    def _wait_for_turn(self, connection: Connection, data: bytes, position: int) -> int:
        """Have pulls wait until they may be handed over; where those end that do."""
        end = self._pulls_end(data, position, connection.max_frame_bytes)
        frames = data[position:end]
        return (
            end if frames and _wait(self._turns.later, self._collect_later, connection, frames) else position
        )

    def _collect_later(self, connection: Connection, frames: bytes) -> None:
        """There is time now. The pulls are decided now, too."""
        connection.state.reads_later -= 1
        if connection.closed:
            return
        position = self._collect_in_turn(connection, frames, 0) if self._is_open else 0
        if position < len(frames):
            _handle_singly(connection, frames[position:])

    def _collect_in_turn(self, connection: Connection, data: bytes, position: int) -> int:
        self._places.has_time = True
        try:
            return self._collect(connection, data, position)
        finally:
            self._places.has_time = False

    async def wait_idle(self) -> None:
        """Return when no pull waits for its turn, or for the thread."""
        self._turns.hurry()
        if self._cold_answers is not None:
            await self._cold_answers.wait_idle()

    async def stop(self) -> None:
        """End the thread."""
        if self._cold_answers is not None:
            await self._cold_answers.stop()

    def _collect(self, connection: Connection, data: bytes, position: int) -> int:
        singles_left = _MAX_SINGLE
        while not (connection.closed or connection.is_write_paused):
            # While the thread may write, the loop does so at the end of the cycle.
            fd = _NO_FD if connection.state.reads_old else connection.writable_fd()
            answered = self._answer(connection, data, position, fd)
            if answered == len(data):
                return answered
            if answered != position:
                position = answered
                continue
            end = self._pulls_end(data, position, connection.max_frame_bytes)
            if end == position:
                break
            length = int.from_bytes(data[position : position + _LENGTH_BYTES], "big")
            frame_end = position + _LENGTH_BYTES + length
            if self._places.lacks_time and _wait(
                self._cold_reads.read_later, self._answer_later, connection, data[position:frame_end]
            ):
                position = frame_end
                continue
            if frame_end == end or not singles_left or not self._is_open:
                break
            singles_left -= 1
            _handle_singly(connection, data[position:frame_end])
            position = frame_end
        return position

    def _answer_later(self, connection: Connection, frame: bytes) -> None:
        """There is time now. The pull is decided anew, since what it may read can have changed."""
        connection.state.reads_later -= 1
        if connection.closed:
            return
        answered = 0
        if self._is_open and not connection.is_write_paused:
            self._places.has_time = True
            self._places.windows.clear()
            try:
                answered = self._answer(connection, frame, 0, _NO_FD)
            finally:
                self._places.has_time = False
        if not answered:
            _handle_singly(connection, frame)

    @property
    def _is_open(self) -> bool:
        """Whether there are pulls that nothing has to see."""
        offsets, config = self._offsets, self._config.current
        if config is not self._followed:
            self._follow(config)
        return not (
            self._admission.sees_pulls
            or self._hooks.after_pull
            or self._processor.charge is not None
            or offsets.resets
            or offsets.floors.table
            or self._is_slave
            or self._status.current.kernel is None
        )

    def _answer(self, connection: Connection, data: bytes, position: int, fd: int) -> int:
        """Answer pulls up to the first that is not ordinary; where they end. The answers are written to
        `fd`."""
        state: ConnectionState = connection.state
        places = self._places
        places.begin_run(connection.last_active)
        if state.reads_old and not places.has_time and self._cold_answers is not None:
            self._cold_answers.collect()  # what was sent before is noted before
        try:
            answered = self._answer_pulls(
                connection,
                state.known_pulls,
                data,
                position,
                connection.max_frame_bytes,
                fd,
                self._setup,
                self._store_log.max_phy_offset,
                self._now_ms(),
            )
        except (OSError, KourouError):
            # A file cannot be read or mapped: not the kernel's fault, and the general way reports it.
            return position
        except Exception:
            # Nothing is answered: the general way handles what it would have answered.
            _log.exception("the compiled kernel failed; Python code replaces it until the next start")
            self._status.fail("a pull")
            return position
        finally:
            if places.hands_over and not places.has_time:
                self._turns.spend()
        if answered is None:
            # At the end of a queue nothing is old; a pull that waits for its turn says nothing about it.
            state.reads_old = places.hands_over or (places.lacks_time and state.reads_old)
            return position
        end, pulls, size_bytes, rest, commits = answered
        state.reads_old = places.hands_over
        if rest is not None:
            connection.send(rest)
        if commits is not None:
            for (group, topic, *_), queue_id, offset in commits:
                self._offsets.commit(group, topic, queue_id, offset, connection.remote_address)
        if pulls:
            self.notes.answered(pulls, self._now_s() - connection.last_heard)
        if places.read_old:
            self._cold_reads.spend(size_bytes)
        return end

    def _follow(self, config: BrokerConfig) -> None:
        """Use a configuration from here on."""
        self._followed = config
        self._is_slave = config.is_slave
        self._setup = self._new_setup()

    def _new_setup(self) -> PullSetup:
        processor = self._processor
        numbers = pull_numbers(
            _numbers_of(processor.stock_limits),
            _numbers_of(processor.large_limits),
            max_filter_units=processor.max_filter_units,
            run_bytes=_RUN_BYTES,
            region_bytes=REGION_BYTES,
            block_units=BLOCK_UNITS,
            chunk_units=CHUNK_UNITS,
        )
        return (
            *KERNEL_TEMPLATES,
            numbers,
            self._by_topic,
            self._places.windows,
            self.notes.noted,
            self._kernel_targets.find,
            self._places.find,
            self._places.may_read_old,
            None if self._cold_answers is None else self._cold_answers.reader,
        )


def _wait(
    later: Callable[[Callable[[], None]], bool],
    handle: Callable[[Connection, bytes], None],
    connection: Connection,
    frames: bytes,
) -> bool:
    """Have pulls of old messages handled when `later` has time for them; False if too many wait there, or of
    the connection."""
    state: ConnectionState = connection.state
    if state.reads_later >= _MAX_LATER or not later(partial(handle, connection, frames)):
        return False
    state.reads_later += 1
    return True


def _handle_singly(connection: Connection, frame: bytes) -> None:
    connection.handle_singly(FrameDecoder(connection.max_frame_bytes).feed(frame))


def _numbers_of(limits: TransferLimits) -> PullLimits:
    return (
        *limits.in_memory,
        *limits.on_disk,
        limits.memory_bytes,
        min(limits.max_messages, MAX_MESSAGES),
    )
