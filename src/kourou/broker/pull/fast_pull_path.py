"""FastPullPath: ordinary pulls of one read, answered together by the compiled kernel (store/kernel.py).

Ordinary is what needs no decision: a pull of messages that are in memory, for a group and a topic of which is
known what the group may pull, by tags or all (pull_targets.py). Known is only what was decided by
the admission gate under the current ruling; the first pull after a change is decided anew.
Any other pull is handled as all requests are (pull_message_processor.py), those after it by the kernel again.
So is every pull while something has to see each: a check of requests, a hook, the limits of accounts; while a
reset or an overflow policy moves offsets; on a slave; and where the kernel is not in use.
Answers leave in the order of the pulls. Statistics and offsets are recorded for all pulls of a run at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kourou.broker.pull.pull_answer import KERNEL_TEMPLATES
from kourou.errors import KourouError
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.store.kernel import Kernel, Pulled, PullLimits, PullTargetFields
from kourou.store.log.log_regions import LogWindow
from kourou.store.read.get_message import DENSE
from kourou.store.read.transfer_limits import MAX_MESSAGES, TransferLimits

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.connection_state import ConnectionState
    from kourou.broker.hooks import BrokerHooks
    from kourou.broker.pull.cold_pulls import ColdReadThrottle
    from kourou.broker.pull.pull_message_processor import PullMessageProcessor
    from kourou.broker.pull.pull_targets import PullTarget
    from kourou.broker.settings import KernelStatus, LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.tables.offsets import ConsumerOffsetManager
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


class KnownPull(NamedTuple):
    """A group that may pull from a topic. The compiled kernel reads the fields by position.

    `slow_broker_id`: the broker to ask for messages that are no longer in memory here. `codes`: of the wanted
    tags; None: all messages are wanted.
    """

    group: str
    topic: str
    queue_nums: int
    topic_sys_flag: int
    broker_id: int
    slow_broker_id: int
    codes: tuple[int, ...] | None


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
        finish_sends: Callable[[Connection], None],
    ) -> None:
        self._pulls_end = kernel.pulls_end
        self._answer_pulls = kernel.answer_pulls
        self._status = status
        self._config = config
        self._admission = admission
        self._hooks = hooks
        self._processor = processor
        self._targets = processor.targets
        self._offsets = offsets
        self._stats = stats
        self._store_log = log
        self._by_topic = queues.by_topic
        self._cold_reads = cold_reads
        self._cycles = cycles
        self._finish_sends = finish_sends
        self._connection: Connection | None = None
        self._max_filter_units = processor.max_filter_units
        # Of the run that is answered: whether it has time for old messages anyway, whether there was none for
        # some, and whether it has read some.
        self._has_time = self._lacks_time = self._reads_old = False
        self._large_limits = _numbers_of(processor.large_limits)
        self._limits: tuple[TransferLimits, PullLimits] | None = None
        # Called for each run that is answered: when its pulls arrived, and what each got.
        self.on_answered: Callable[[float, Sequence[Pulled]], None] | None = None

    def collect(self, connection: Connection, data: bytes, position: int) -> int:
        """Answer the pulls that `data` has from `position` on; where those end that are handled."""
        end = self._pulls_end(data, position, connection.max_frame_bytes)
        if end == position or not self._is_open:
            return position
        self._finish_sends(connection)
        self._cycles.open()
        singles_left = _MAX_SINGLE
        while position < end and not (connection.closed or connection.is_write_paused):
            answered = self._answer(connection, data, position, end)
            if answered == position:
                length = int.from_bytes(data[position : position + _LENGTH_BYTES], "big")
                answered = position + _LENGTH_BYTES + length
                if self._lacks_time and self._read_later(connection, data[position:answered]):
                    position = answered
                    continue
                if answered == end or not singles_left or not self._is_open:
                    break
                singles_left -= 1
                _handle_singly(connection, data[position:answered])
            position = answered
        return position

    def _read_later(self, connection: Connection, frame: bytes) -> bool:
        """Answer a pull of old messages when there is time for it; False if it has to wait elsewhere."""
        state: ConnectionState = connection.state
        if state.reads_later >= _MAX_LATER or not self._cold_reads.read_later(
            partial(self._answer_later, connection, frame)
        ):
            return False
        state.reads_later += 1
        return True

    def _answer_later(self, connection: Connection, frame: bytes) -> None:
        """There is time now. The pull is decided anew, since what it may read can have changed."""
        connection.state.reads_later -= 1
        if connection.closed:
            return
        answered = 0
        if self._is_open and not connection.is_write_paused:
            self._has_time = True
            try:
                answered = self._answer(connection, frame, 0, len(frame))
            finally:
                self._has_time = False
        if not answered:
            _handle_singly(connection, frame)

    @property
    def _is_open(self) -> bool:
        """Whether there are pulls that nothing has to see."""
        offsets = self._offsets
        return not (
            self._admission.sees_pulls
            or self._hooks.after_pull
            or self._processor.charge is not None
            or offsets.has_resets
            or offsets.floors.table
            or self._config.current.is_slave
            or self._status.current.kernel is None
        )

    def _answer(self, connection: Connection, data: bytes, position: int, end: int) -> int:
        """Answer pulls up to the first that is not ordinary; where they end."""
        self._connection = connection
        self._lacks_time = self._reads_old = False
        try:
            answered = self._answer_pulls(
                data,
                position,
                end,
                KERNEL_TEMPLATES,
                self._current_limits(),
                self._store_log.max_phy_offset,
                _RUN_BYTES,
                self._by_topic,
                self._find_target,
                self._find_window,
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
            self._connection = None
        if answered is None:
            return position
        position, answers, pulled = answered
        connection.send(answers)
        self._record(connection, pulled)
        if self._reads_old:
            self._cold_reads.spend(len(answers))
        return position

    # -- what the kernel asks for ----------------------------------------------------------------

    def _find_target(
        self,
        topic: str,
        group: str,
        queue_id: int,
        sys_flag: int,
        subscription: str | None,
        expression_type: str | None,
        sub_version: int,
    ) -> PullTargetFields | None:
        """What is known of a pull of this read; None: it has to be decided, or it has a filter by
        properties."""
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=0,
            max_msg_nums=0,
            sys_flag=sys_flag,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=subscription,
            sub_version=sub_version,
            expression_type=expression_type,
        )
        target = self._targets.known(cast("Connection", self._connection), header)
        if target is None or target.wants is not None:
            return None
        if target.kernel_fields is None:
            target.kernel_fields = self._fields_of(target, topic, group)
        return target.kernel_fields

    def _fields_of(self, target: PullTarget, topic: str, group: str) -> KnownPull:
        """These hold as long as the target: a change of the configuration is a new ruling."""
        broker_id = slow_broker_id = 0
        if self._config.current.slave_read_enable:
            broker_id = target.group_config.broker_id
            slow_broker_id = target.group_config.which_broker_when_consume_slowly
        topic_config = target.topic_config
        return KnownPull(
            group,
            topic,
            topic_config.read_queue_nums,
            topic_config.topic_sys_flag,
            broker_id,
            slow_broker_id,
            None if target.codes is None else tuple(target.codes),
        )

    def _find_window(self, low: int, end: int, wanted_bytes: int) -> LogWindow | None:
        """The log from `low` to `end`; None where it is not in memory, where too little of it is wanted, or
        while reads of old messages give way to sends."""
        log = self._store_log
        if low >= log.window_phy_offset:
            return log.window_at(low)
        if end - low >= DENSE * wanted_bytes:
            return None
        if not (self._has_time or self._cold_reads.is_unlimited):
            self._lacks_time = True
            return None
        if not self._reads_old:
            self._reads_old = True
            self._cold_reads.resume()
        return log.region_at(low, end)

    def _current_limits(self) -> tuple[PullLimits, PullLimits, int]:
        stock = self._processor.stock_limits
        if self._limits is None or self._limits[0] is not stock:
            self._limits = stock, _numbers_of(stock)
        return self._limits[1], self._large_limits, self._max_filter_units

    # -- recording -------------------------------------------------------------------------------

    def _record(self, connection: Connection, pulled: Sequence[Pulled]) -> None:
        """Record offsets and statistics of answered pulls."""
        if self.on_answered is not None:
            self.on_answered(connection.last_heard, pulled)
        offsets, stats = self._offsets, self._stats
        for (group, topic, *_), times, messages, size_bytes, next_offsets, commits, _ in pulled:
            for queue_id, offset in commits:
                offsets.commit(group, topic, queue_id, offset, connection.remote_address)
            offsets.commit_pulls(group, topic, next_offsets)
            stats.pulled(group, topic, messages, size_bytes, times)


def _handle_singly(connection: Connection, frame: bytes) -> None:
    connection.handle_singly(FrameDecoder(connection.max_frame_bytes).feed(frame))


def _numbers_of(limits: TransferLimits) -> PullLimits:
    return (
        *limits.in_memory,
        *limits.on_disk,
        limits.memory_bytes,
        min(limits.max_messages, MAX_MESSAGES),
    )
