"""PopOffsets: where the next pop of a group begins in a queue.

That is the committed offset, which moves when the check point of a pop is stored; until then the next pop
continues behind the pending one. If a check point cannot be stored, the group goes back to what is committed:
messages may come twice then, none is skipped. A group without an offset begins where `initMode` says, and
that is committed at once. Resets by an administrator rule over all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.broker.pop.order_info import OrderKey
from kourou.broker.tables.offsets import NONE
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX
from kourou.store.queue.cq_unit import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.pop.contracts import Orders
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.queue.consume_queue import ConsumeQueue

INIT_MIN: Final = 0
"""`initMode`: a new group begins at the oldest message. Any other number: at the newest."""


class _Pending:
    """Pops of one queue whose check points are not stored yet. `epoch` changes when they count no more."""

    __slots__ = ("count", "epoch", "next_offset")

    def __init__(self) -> None:
        self.next_offset = NONE
        self.count = 0
        self.epoch = 0

    def forget(self) -> None:
        self.next_offset = NONE
        self.epoch += 1


class PopOffsets:
    """The offsets of one broker's pops. `memory_bytes` of the newest bytes of the log count as in memory."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log: CommitLog,
        offsets: ConsumerOffsetManager,
        orders: Orders,
        memory_bytes: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = log
        self._offsets = offsets
        self._orders = orders
        self._memory_bytes = memory_bytes
        self._pending: dict[OrderKey, _Pending] = {}

    # -- asking ----------------------------------------------------------------------------------

    def find(self, key: OrderKey) -> int:
        """Where the group continues; -1 if it has not begun."""
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        pending = self._pending.get(key) if self._pending else None
        return committed if pending is None else max(committed, pending.next_offset)

    def backlog(self, key: OrderKey, queue: ConsumeQueue | None) -> int:
        """How many messages the group has before it; one that has not begun, all of the queue."""
        if queue is None:
            return 0
        return max(0, queue.max_queue_offset - max(self.find(key), queue.min_queue_offset))

    # -- beginning -------------------------------------------------------------------------------

    def begin(
        self, key: OrderKey, queue: ConsumeQueue | None, init_mode: int, client_host: str
    ) -> int | None:
        """Where a pop begins now: resets are taken, a new group is placed. None: to know it, the first unit
        of the queue has to be read from disk (`ConsumeQueue.read_units`)."""
        topic, group, queue_id = key
        reset = self._offsets.take_reset(topic, group, queue_id)
        if reset is not None:
            self._orders.clear(key)
            self.move(key, reset, client_host)
            return reset
        offset = self.find(key)
        if offset != NONE:
            return offset
        first = self._first_offset(key, queue, init_mode)
        if first is not None:
            self._offsets.commit(group, topic, queue_id, first, client_host)
        return first

    def _first_offset(self, key: OrderKey, queue: ConsumeQueue | None, init_mode: int) -> int | None:
        if queue is None:
            return 0
        low = queue.min_queue_offset
        if init_mode == INIT_MIN or key.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return low
        high = queue.max_queue_offset
        if self._config.current.init_pop_offset_by_check_msg_in_mem and low <= 0 < high:
            unit = queue.read_units_nowait(0, 1)
            if unit is None:
                return None
            if unit and self._is_in_memory(UNIT.unpack(unit)[0]):
                return 0
        return max(high - 1, 0)  # the newest message is delivered

    def first_offset_of(self, key: OrderKey, queue: ConsumeQueue, first_unit: bytes, client_host: str) -> int:
        """The same for a group that begins at the newest message, where the first unit had to be read."""
        is_recent = bool(first_unit) and self._is_in_memory(UNIT.unpack(first_unit)[0])
        first = 0 if is_recent else max(queue.max_queue_offset - 1, 0)
        self._offsets.commit(key.group, key.topic, key.queue_id, first, client_host)
        return first

    def _is_in_memory(self, phy_offset: int) -> bool:
        return self._log.max_phy_offset - phy_offset <= self._memory_bytes()

    # -- moving ----------------------------------------------------------------------------------

    def move(self, key: OrderKey, queue_offset: int, client_host: str) -> None:
        """Begin somewhere else, whatever is pending."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.forget()
        self._offsets.commit(key.group, key.topic, key.queue_id, queue_offset, client_host)

    def pass_over(self, key: OrderKey, next_offset: int, client_host: str) -> None:
        """Nothing before `next_offset` is for this group: that needs no check point."""
        pending = self._pending.get(key)
        if pending is not None and pending.next_offset != NONE:
            pending.next_offset = next_offset
        else:
            self._offsets.commit(key.group, key.topic, key.queue_id, next_offset, client_host)

    def advance(self, key: OrderKey, next_offset: int) -> int:
        """A pop has taken what lies before `next_offset`; returns a number to call `stored` with."""
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending()
        pending.count += 1
        pending.next_offset = next_offset
        return pending.epoch

    def stored(
        self, key: OrderKey, epoch: int, next_offset: int, client_host: str, *, is_stored: bool
    ) -> None:
        """The check point of a pop is stored, or cannot be."""
        pending = self._pending[key]
        pending.count -= 1
        if not is_stored:
            pending.forget()
        elif epoch == pending.epoch:
            if not pending.count:
                next_offset = pending.next_offset  # with what was passed over meanwhile
            if next_offset > self._offsets.query(key.group, key.topic, key.queue_id):
                self._offsets.commit(key.group, key.topic, key.queue_id, next_offset, client_host)
        if not pending.count:
            del self._pending[key]
