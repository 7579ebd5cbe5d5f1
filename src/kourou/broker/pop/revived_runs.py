"""RevivedRuns: puts runs of messages into a retry topic by the compiled kernel, from their stored bytes.

It takes what needs no decision: a sound record that fits, with no property that has to be replaced. The first
one that is otherwise ends the run, and ReviveService puts it (revive_service.py), with the same bytes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.protocol.layout import Buffer
from kourou.protocol.properties import MessageConst, property_pair
from kourou.store.log.put_status import PutRefusedError, PutStatus

if TYPE_CHECKING:
    from kourou.broker.settings import KernelStatus
    from kourou.store.kernel import EncodedAgain, Kernel
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

_ANY_TIMES: Final = 2**31 - 1
"""A record has no room for more."""


class RunSource(NamedTuple):
    """What the records of a run say, or Python has to read them. With `attempts` of them a message is a dead
    letter; None: it never is."""

    topic: str
    queue_id: int
    group: str
    pop_time: int
    attempts: int | None


class RevivedRuns:
    """Puts runs for one broker."""

    def __init__(
        self,
        *,
        cycles: Cycles,
        appender: LogAppender,
        queues: ConsumeQueues,
        kernel: KernelStatus,
        store_host: bytes,
    ) -> None:
        self._cycles = cycles
        self._appender = appender
        self._queues = queues
        self._kernel = kernel
        self._store_host = store_host

    @property
    def is_usable(self) -> bool:
        """Whether there is a kernel."""
        return self._kernel.current.kernel is not None

    def put(self, source: RunSource, records: list[Buffer], units: bytes, topic: str, queue_id: int) -> int:
        """Leave messages pending in a queue, the first of `records`, which lie where `units` say: how many.
        0: the first one has to be put by Python, which also says why it is refused."""
        kernel = self._kernel.current.kernel
        if kernel is None:
            return 0
        self._cycles.open()
        self._appender.begin_cycle()
        encoded = self._encoded(kernel, source, records, units, self._queues.get(topic, queue_id))
        if encoded is None:
            return 0
        messages, encoded_records, hashed_keys, grown = encoded
        self._appender.put_run(messages, (encoded_records,), hashed_keys, grown, _ignore)
        return messages

    def _encoded(
        self, kernel: Kernel, source: RunSource, records: list[Buffer], units: bytes, queue: ConsumeQueue
    ) -> EncodedAgain | None:
        if queue.encoder is None:
            try:
                self._appender.prepare(queue)
            except PutRefusedError:
                return None
        room = self._appender.run_room()
        if room is None:
            return None
        attempts = _ANY_TIMES if source.attempts is None else min(source.attempts, _ANY_TIMES)
        try:
            return kernel.encode_again(
                records,
                units,
                (source.topic.encode(), source.queue_id, attempts),
                (
                    property_pair(MessageConst.PROPERTY_FIRST_POP_TIME, source.pop_time).encode(),
                    property_pair(MessageConst.PROPERTY_ORIGIN_GROUP, source.group).encode(),
                ),
                queue,
                self._store_host,
                *room,
            )
        except Exception:
            _log.exception("the compiled kernel failed; Python code replaces it until the next start")
            self._kernel.fail("the revival of popped messages")
            return None


def _ignore(_: PutStatus, __: int, ___: int) -> None:
    """The acks behind them, of the same commit cycle, say what has become of them."""
