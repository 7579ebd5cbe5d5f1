"""MessagesInFlight: what a pop, an ack and a change of the invisible time do to the messages in flight.

Each is decided by the table, at once, and answered when its records are stored.
Not here: requests (ack_processor.py), what is done with messages whose time has ended (revive_service.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kourou.errors import RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.pop.revive_records import CheckPointBody, CheckPointKey
from kourou.store.log.put_status import PutRefusedError, PutStatus

if TYPE_CHECKING:
    from kourou.broker.pop.check_points import CheckPointTable
    from kourou.broker.pop.contracts import Popped, PopStored
    from kourou.broker.pop.revive_log import ReviveLog
    from kourou.broker.settings import LiveConfig


@dataclass(slots=True)
class PopCounts:
    """What has happened to messages in flight since the start."""

    check_points: int = 0
    """Those of pops."""
    acked: int = 0
    late_acks: int = 0
    """Acks of messages that were not in flight: their time had ended, or they were acked before."""
    revived: int = 0
    """Messages that were put into a retry topic, since their time had ended without an ack."""
    dead_letters: int = 0
    dropped: int = 0
    """Messages whose time had ended, and whose record, topic or group was gone."""


class ChangedTime(NamedTuple):
    """A new invisible time; with the message's offset as start offset it makes the new handle."""

    pop_time: int
    revive_queue_id: int


ChangeDone: TypeAlias = Callable[[PutStatus, ChangedTime], None]


class MessagesInFlight:
    """The messages in flight of one broker. `has_timers`: whether the broker was started with them."""

    def __init__(
        self,
        *,
        table: CheckPointTable,
        log: ReviveLog,
        config: LiveConfig,
        has_timers: bool,
        counts: PopCounts,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._table = table
        self._log = log
        self._config = config
        self._has_timers = has_timers
        self.counts = counts
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def check_available(self) -> None:
        """RequestError SYSTEM_ERROR where no message can wait for a time."""
        if not (self._has_timers and self._config.current.timer_wheel_enable):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "POP needs the broker's timers, which are off: timerWheelEnable is false, or was when the "
                "broker started",
            )

    def take(self, popped: Popped, done: PopStored) -> None:
        """Put the check point of a pop in the open commit cycle, which is opened if none is. `done` is called
        once, not from inside this call. PutRefusedError, RequestError: nothing is put, `done` is not called.
        """
        self.check_available()
        body = CheckPointBody(
            start_offset=popped.start_offset,
            pop_time=popped.pop_time,
            invisible_time=popped.invisible_time_ms,
            count=len(popped.offsets),
            queue_id=popped.queue_id,
            topic=popped.topic,
            group=popped.group,
            offset_differences=[offset - popped.start_offset for offset in popped.offsets],
            broker_name=self._config.current.broker_name,
        )
        if self._table.find(body.key("")) is not None:
            raise PutRefusedError(
                PutStatus.SERVICE_NOT_AVAILABLE,
                f"{popped.topic}/{popped.queue_id}: group {popped.group} has popped from "
                f"{popped.start_offset} in the same millisecond, and was moved back since; pop again",
            )
        self.counts.check_points += 1
        self._put(body, popped.revive_queue_id, popped.next_offset, done)

    def _put(
        self, body: CheckPointBody, revive_queue_id: int, next_offset: int | None, done: PopStored
    ) -> None:
        self._log.put_check_point(
            body,
            revive_queue_id=revive_queue_id,
            due_ms=self._monotonic_ms() + body.invisible_time,
            next_offset=next_offset,
            done=done,
        )

    def count(self, topic: str, group: str, queue_id: int | None = None) -> int:
        """Messages in flight, of one queue or of all of the topic."""
        return self._table.count(topic, group, queue_id)

    @property
    def check_points(self) -> int:
        """How many check points are open."""
        return len(self._table)

    def by_group(self) -> Iterator[tuple[str, str, int]]:
        """Topic, group, and how many messages are in flight."""
        return self._table.counts()

    def knows(self, key: CheckPointKey) -> bool:
        """Whether a check point is open."""
        return self._table.find(key) is not None

    def ack(self, key: CheckPointKey, queue_offsets: Iterable[int], done: PopStored) -> bool:
        """Acknowledge messages of a check point. False: none of them is in flight, there is nothing to do,
        and `done` is not called; else it is, once, when the ack is stored."""
        check_point = self._table.find(key)
        bits = 0 if check_point is None else check_point.bits_of(queue_offsets) & check_point.unacked
        if check_point is None or not bits:
            self.counts.late_acks += 1
            return False
        self._log.ack(check_point, bits, done)
        return True

    def change_invisible_time(
        self, key: CheckPointKey, queue_offset: int, invisible_time: int, done: ChangeDone
    ) -> None:
        """Have a message become visible again so long from now: a check point of its own, and an ack of the
        one that it was in. `done` is called once. RequestError, PutRefusedError: it is as before."""
        self.check_available()
        check_point = self._table.find(key)
        bits = 0 if check_point is None else check_point.bits_of((queue_offset,)) & check_point.unacked
        if check_point is None or not bits or bits & check_point.acking:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{key.topic}/{key.queue_id}, offset {queue_offset}: the message is not in flight by this "
                "receipt handle: it is acknowledged, its invisible time has ended or was changed since; use "
                "the newest handle, or wait until the message is delivered again",
            )
        # A check point is known by its pop time and first message; this message may be first in one already.
        new_key = key._replace(start_offset=queue_offset, pop_time=max(self._now_ms(), key.pop_time + 1))
        while self._table.find(new_key) is not None:
            new_key = new_key._replace(pop_time=new_key.pop_time + 1)
        body = CheckPointBody(
            start_offset=queue_offset,
            pop_time=new_key.pop_time,
            invisible_time=invisible_time,
            count=1,
            queue_id=key.queue_id,
            topic=key.topic,
            group=key.group,
            offset_differences=[0],
            broker_name=check_point.broker_name,
        )
        changed = ChangedTime(new_key.pop_time, check_point.revive_queue_id)
        put_statuses: list[PutStatus] = []
        self._put(body, check_point.revive_queue_id, None, put_statuses.append)

        def acked(status: PutStatus) -> None:
            # Both are in one commit cycle, and the check point comes first.
            failed = next((each for each in (*put_statuses, status) if not each.is_stored), status)
            done(failed, changed)

        self._log.ack(check_point, bits, acked, is_consumed=False)
