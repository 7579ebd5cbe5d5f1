"""How a payment provider behaves, also in reality: it calls back late, repeatedly, out of order, in parallel.

Everything follows from the id of the payment and the behaviour, so that a run with the same seeds repeats.
Not here: what it remembers (tables.py), when it calls (service.py).
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec

from webshop.callbacks import CallbackKind

DelayMs = Annotated[int, msgspec.Meta(ge=0, le=24 * 3600 * 1000)]
Repeats = Annotated[int, msgspec.Meta(ge=0, le=20)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the provider behaves; the operator changes it while the shop runs."""

    delay_ms: DelayMs = 40
    """How long a charge takes."""
    repeats: Repeats = 2
    """How often the result is reported again."""
    decline_rate: Rate = 0.05
    """Which part of the charges is declined."""
    is_paused: bool = False
    """Whether charges are accepted but nothing is reported, until this is over."""

    def changed(self, changes: dict[str, Any]) -> Behaviour:
        """This behaviour with some fields changed; ValueError says what is wrong with them."""
        fields = asdict(self)
        if unknown := ", ".join(changes.keys() - fields.keys()):
            raise ValueError(f"{unknown} is unknown; known are {', '.join(fields)}")
        return msgspec.convert(fields | changes, Behaviour)


def result_of(payment_id: str, behaviour: Behaviour) -> CallbackKind:
    """How a charge ends."""
    is_declined = random.Random(f"result of {payment_id}").random() < behaviour.decline_rate
    return CallbackKind.DECLINED if is_declined else CallbackKind.PAID


def planned_callbacks(payment_id: str, behaviour: Behaviour) -> list[tuple[CallbackKind, int]]:
    """The callbacks of a charge, and their delays in ms: that it is processed, its result, repeats of that.

    The report of processing may come after the result, and some repeats at the same moment.
    """
    chance = random.Random(f"callbacks of {payment_id}")
    delay_ms, result = behaviour.delay_ms, result_of(payment_id, behaviour)
    delays = [(CallbackKind.PROCESSING, chance.randint(0, 2 * delay_ms)), (result, delay_ms)]
    for _ in range(behaviour.repeats):
        later_ms = chance.choice([0, chance.randint(1, 2 * delay_ms + 1)])
        delays.append((result, delay_ms + later_ms))
    return delays
