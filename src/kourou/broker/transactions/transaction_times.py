"""When a half message is looked at: decided from its age and the configuration alone."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from kourou.broker.transactions.half_messages import check_times
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

_MS_PER_HOUR: Final = 3_600_000


class NextStep(enum.Enum):
    """What to do with an open half message."""

    STOP = enum.auto()
    """It is too young, and so are those behind it."""
    PUT_AGAIN = enum.auto()
    """Its producer asked for more time: look at it later."""
    CHECK = enum.auto()
    """Ask a producer."""
    GIVE_UP = enum.auto()
    """Nobody would say, and it has been long enough."""


@dataclass(frozen=True, slots=True)
class TransactionTimes:
    """The rules of one round of checks."""

    end_queue_offset: int
    """Halves from there on were stored after the round began."""
    timeout_ms: int
    check_max: int
    reserved_ms: int

    @classmethod
    def of(cls, config: BrokerConfig, end_queue_offset: int) -> Self:
        """The rules as they are configured when the round starts."""
        return cls(
            end_queue_offset,
            config.transaction_time_out,
            config.transaction_check_max,
            config.file_reserved_time * _MS_PER_HOUR,
        )

    def next_step(self, half: MessageExt, age_ms: int | None) -> NextStep:
        """What to do with a half that is still open. `age_ms` None: it was born in the future."""
        if half.queue_offset >= self.end_queue_offset:
            return NextStep.STOP
        times = check_times(half)
        if (times is not None and times >= self.check_max) or (age_ms or 0) > self.reserved_ms:
            return NextStep.GIVE_UP
        immunity = half.properties.get(MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is not None:
            is_immune = age_ms is not None and age_ms < immunity_ms(immunity, self.timeout_ms)
            return NextStep.PUT_AGAIN if is_immune else NextStep.CHECK
        # One from the future, of a producer whose clock is ahead, is asked for: its time may never come.
        return NextStep.STOP if age_ms is not None and age_ms < self.timeout_ms else NextStep.CHECK


def immunity_ms(text: str, timeout_ms: int) -> int:
    """How long a producer wants not to be asked; what is not a number of seconds counts as the default."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text) * 1000
    return timeout_ms
