"""Where a message with a delay is stored until its time has come.

Two ways to ask for one. `DELAY`, a level: the message waits in SCHEDULE_TOPIC_XXXX, in the queue of
its level. `TIMER_DELAY_SEC`, `TIMER_DELAY_MS` or `TIMER_DELIVER_MS`, any time: it waits in
rmq_sys_wheel_timer. Both keep where it goes in REAL_TOPIC and REAL_QID. A level wins over a time.
Not here: delivering (schedule_service.py, timer_service.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.protocol.properties import (
    MessageConst,
    PropertyScanner,
    join_properties,
    property_pair,
    remove_property,
)
from kourou.store.log.put_status import PutRefusedError, PutStatus

if TYPE_CHECKING:
    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.delay.timer_messages import TimerMessages
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.event_counters import EventCounters
    from kourou.broker.storage.inner_message import InnerMessage

_DELAY: Final = MessageConst.PROPERTY_DELAY_TIME_LEVEL
_SEC: Final = MessageConst.PROPERTY_TIMER_DELAY_SEC
_MS: Final = MessageConst.PROPERTY_TIMER_DELAY_MS
_DELIVER: Final = MessageConst.PROPERTY_TIMER_DELIVER_MS
_OUT: Final = MessageConst.PROPERTY_TIMER_OUT_MS
_REAL_TOPIC: Final = MessageConst.PROPERTY_REAL_TOPIC
_REAL_QID: Final = MessageConst.PROPERTY_REAL_QUEUE_ID

# The bit that prepared and rolled back transaction records share: neither is ever delivered.
_UNFINISHED: Final = (
    MessageSysFlag.TRANSACTION_PREPARED_TYPE.value & MessageSysFlag.TRANSACTION_ROLLBACK_TYPE.value
)

_scan_level: Final = PropertyScanner(_DELAY).values
DELAY_PROPERTIES: Final = (_DELAY, _SEC, _MS, _DELIVER)
"""Properties that make a message a delayed one."""
_scan_delays: Final = PropertyScanner(*DELAY_PROPERTIES).values
_scan_times: Final = PropertyScanner(_SEC, _MS, _DELIVER, _OUT).values


def is_delayed(properties: str) -> bool:
    """Whether a message is to be delivered later."""
    return any(_scan_delays(properties))


class DelayedMessages:
    """Redirects the delayed messages of one broker. `timers` is None where no time but a level can be had
    (`timerWheelEnable`)."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        delay_levels: tuple[int, ...],
        timers: TimerMessages | None,
        clock_watch: ClockWatch,
        now_ms: Callable[[], int],
        events: EventCounters,
    ) -> None:
        self._events = events
        self._config = config
        self._levels = len(delay_levels)
        self._timers = timers
        self._clock_watch = clock_watch
        self._now_ms = now_ms

    def redirect(self, message: InnerMessage) -> None:
        """Change `message` so that it is stored where it waits, if it has a delay; else it stays as it is.

        PutRefusedError: the delay is not a number, too long, or not available here.
        """
        if message.sys_flag & _UNFINISHED:
            return
        (level_text,) = _scan_level(message.properties)
        level = _number(_DELAY, level_text) if level_text is not None else 0
        if "TIMER_" not in message.properties:  # most that are delayed have a level
            if level > 0:
                wait_for_level(message, level, self._levels)
            return
        *times, out = _scan_times(message.properties)
        if level > 0:
            for name, text in zip((_SEC, _MS, _DELIVER), times, strict=True):
                if text is not None:
                    message.remove_property(name)
            wait_for_level(message, level, self._levels)
        elif any(text is not None for text in times) and out is None and message.topic != TIMER_TOPIC:
            self._wait_for_time(message, *times)

    def wait_until(self, message: InnerMessage, deliver_ms: int) -> None:
        """As `redirect`, for a message of the broker's own without properties of a delay or a target: it gets
        them here. PutRefusedError: it cannot wait so long, or at all."""
        message.properties += property_pair(_DELIVER, max(0, deliver_ms))
        slot_ms = self._slot_of(message.topic, deliver_ms, self._now_ms())
        if slot_ms is not None:
            message.properties += property_pair(_OUT, slot_ms) + _target(message)
            message.topic, message.queue_id = TIMER_TOPIC, 0

    def _wait_for_time(
        self, message: InnerMessage, sec: str | None, ms: str | None, deliver: str | None
    ) -> None:
        now_ms = self._now_ms()
        self._check_enabled()
        slot_ms = self._slot_of(message.topic, _deliver_ms(now_ms, sec, ms, deliver), now_ms)
        if slot_ms is not None:
            message.set_property(_OUT, str(slot_ms))
            _keep_target(message)
            message.topic, message.queue_id = TIMER_TOPIC, 0
        elif message.get_property(MessageConst.PROPERTY_TIMER_DEL_UNIQKEY) is not None:
            raise PutRefusedError(
                PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "the message to recall is due already: it is delivered"
            )

    def _check_enabled(self) -> TimerMessages:
        timers = self._timers
        if not self._config.current.timer_wheel_enable or timers is None:
            raise PutRefusedError(
                PutStatus.WHEEL_TIMER_NOT_ENABLE,
                "timer messages are not enabled: timerWheelEnable is false, or was when the broker started",
            )
        return timers

    def _slot_of(self, topic: str, deliver_ms: int, now_ms: int) -> int | None:
        """The time of the slot that a message for `topic` waits in; None if it is due."""
        timers, config = self._check_enabled(), self._config.current
        if deliver_ms <= now_ms:
            return None
        longest_ms = config.timer_max_delay_sec * 1000
        if deliver_ms - now_ms > longest_ms:
            raise PutRefusedError(
                PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{longest_ms}ms; or if set del msg, the delay time should be bigger than the current time "
                f"(asked for: {deliver_ms - now_ms}ms; the limit is timerMaxDelaySec)",
            )
        out_ms = slot_time(deliver_ms, timers.precision_ms)
        waiting = timers.count_at(self._clock_watch.steady_now_of(out_ms) + timers.ahead_ms)
        _check_congestion(waiting, config.timer_congest_num_each_slot, out_ms)
        self._events.delayed(topic, deliver_ms - now_ms)
        return out_ms


def waiting_queues(properties: str, delay_levels: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    """Topic and queue_id where a message with these properties may wait, or have waited."""
    (level_text,) = _scan_level(properties)
    if level_text is not None and level_text.isdecimal() and int(level_text) > 0:
        return ((RMQ_SYS_SCHEDULE_TOPIC, min(int(level_text), len(delay_levels)) - 1),)
    return ((TIMER_TOPIC, 0),) if "TIMER_" in properties else ()


def wait_for_level(message: InnerMessage, level: int, levels: int) -> None:
    """Send `message` to the queue of its level, of which there are so many: none is above the last."""
    level = min(level, levels)
    if property_pair(_DELAY, level) not in message.properties:
        message.set_property(_DELAY, str(level))
    _keep_target(message)
    message.topic, message.queue_id = RMQ_SYS_SCHEDULE_TOPIC, level - 1


def _keep_target(message: InnerMessage) -> None:
    properties = message.properties
    if "REAL_" in properties:  # not when it is delayed for the first time
        properties = remove_property(remove_property(properties, _REAL_TOPIC), _REAL_QID)
    message.properties = join_properties(properties, _target(message))


def _target(message: InnerMessage) -> str:
    """The properties that say where a message goes."""
    return property_pair(_REAL_TOPIC, message.topic) + property_pair(_REAL_QID, message.queue_id)


def _deliver_ms(now_ms: int, sec: str | None, ms: str | None, deliver: str | None) -> int:
    status = PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    if sec is not None:
        return now_ms + _number(_SEC, sec, status) * 1000
    if ms is not None:
        return now_ms + _number(_MS, ms, status)
    assert deliver is not None
    return _number(_DELIVER, deliver, status)


def slot_time(deliver_ms: int, precision_ms: int) -> int:
    """The time of the slot that a message waits in. A slot is emptied when it is over, not when it
    begins: one that is due on the stroke waits in the slot before."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def _check_congestion(waiting: int, limit: int, out_ms: int) -> None:
    """Refuse all from twice the limit of a slot on, and between the two ever more."""
    if waiting > limit and waiting - limit > random.random() * limit:
        raise PutRefusedError(
            PutStatus.WHEEL_TIMER_FLOW_CONTROL,
            f"timer message is under flow control, max num limit is {limit}, "
            f"the current value is {waiting} at this time ({out_ms}); choose another second",
        )


def _number(name: str, text: str, status: PutStatus = PutStatus.MESSAGE_ILLEGAL) -> int:
    """A number as Java reads it."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise PutRefusedError(status, f"the message is illegal: property {name}={text[:40]} is not a number")
    return int(text)
