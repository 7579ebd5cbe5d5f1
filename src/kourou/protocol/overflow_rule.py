"""OverflowRule: what the attributes of a topic say about a backlog that grows too large.

    overflow.policy      reject, drop-oldest, drop-lowest-priority or dead-letter
    overflow.messages    the limits of the backlog of the slowest live group, on each broker: messages,
    overflow.bytes       bytes of their records (`512m`, `2g`),
    overflow.age         age of the oldest of them: seconds, or `90s`, `10m`, `2h`, `1d`

A policy needs a limit and a limit needs a policy; several limits may be set, and each of them counts.
Not here: what a broker does about it (broker/overflow/).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from kourou.errors import ProtocolError
from kourou.protocol.priority import MESSAGE_TYPE, PRIORITY_TYPE

POLICY: Final = "overflow.policy"
MESSAGES: Final = "overflow.messages"
BYTES: Final = "overflow.bytes"
AGE: Final = "overflow.age"
LIMITS: Final = (MESSAGES, BYTES, AGE)

RESUME_SHARE: Final = 0.9
"""Below this share of its limits a topic takes messages again; drops stop there, too."""

_LONG_MAX: Final = 2**63 - 1
_UNITS_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNITS_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class OverflowPolicy(enum.StrEnum):
    """What a broker does when a limit is reached."""

    REJECT = "reject"
    """Sends are rejected, with the time after which to try again."""
    DROP_OLDEST = "drop-oldest"
    """The group does not get the oldest messages of its backlog any more."""
    DROP_LOWEST_PRIORITY = "drop-lowest-priority"
    """The same of the lowest priorities first. A queue of such a topic is a priority."""
    DEAD_LETTER = "dead-letter"
    """The oldest messages go to the dead letters of the group."""


@dataclass(frozen=True, slots=True)
class OverflowRule:
    """The policy of a topic and its limits; None: no such limit."""

    policy: OverflowPolicy
    messages: int | None = None
    size_bytes: int | None = None
    age_ms: int | None = None

    @classmethod
    def of(cls, attributes: Mapping[str, str]) -> Self | None:
        """The rule in the attributes of a topic; None: it has none. ProtocolError if they contradict each
        other."""
        named = attributes.get(POLICY)
        limits = [key for key in LIMITS if key in attributes]
        if named is None:
            if limits:
                raise ProtocolError(
                    f"{limits[0]} has no effect without {POLICY}: set it to one of {_policies()}"
                )
            return None
        policy = check_policy(named)
        if not limits:
            raise ProtocolError(
                f"{POLICY}={policy} needs a limit: set {', '.join(LIMITS[:-1])} or {LIMITS[-1]}"
            )
        if policy is OverflowPolicy.DROP_LOWEST_PRIORITY:
            _check_priorities(attributes)
        return cls(
            policy,
            parse_count(attributes[MESSAGES]) if MESSAGES in attributes else None,
            parse_size_bytes(attributes[BYTES]) if BYTES in attributes else None,
            parse_age_ms(attributes[AGE]) if AGE in attributes else None,
        )

    def __str__(self) -> str:
        limits = (
            None if self.messages is None else f"{self.messages} messages",
            None if self.size_bytes is None else f"{self.size_bytes} bytes",
            None if self.age_ms is None else f"an age of {self.age_ms // 1000} s",
        )
        return f"{self.policy} at {' or '.join(limit for limit in limits if limit is not None)}"


def _check_priorities(attributes: Mapping[str, str]) -> None:
    policy, kind = OverflowPolicy.DROP_LOWEST_PRIORITY, attributes.get(MESSAGE_TYPE)
    if kind != PRIORITY_TYPE:
        raise ProtocolError(
            f"{POLICY}={policy} needs a topic of {MESSAGE_TYPE}={PRIORITY_TYPE}, whose queues are its "
            f"priorities; this one is {kind or 'NORMAL'}: use {OverflowPolicy.DROP_OLDEST}, or make a "
            "topic of that type"
        )
    if AGE in attributes:
        raise ProtocolError(
            f"{AGE} cannot be kept by {POLICY}={policy}: the oldest message may have a high priority; "
            f"limit {MESSAGES} or {BYTES}, or use {OverflowPolicy.DROP_OLDEST}"
        )


def _policies() -> str:
    return ", ".join(OverflowPolicy)


def check_policy(text: str) -> OverflowPolicy:
    """The policy of that name; ProtocolError."""
    try:
        return OverflowPolicy(text)
    except ValueError:
        raise ProtocolError(f"{POLICY}={text} is unknown: it is one of {_policies()}") from None


def parse_count(text: str) -> int:
    """A number of messages, from 1 on; ProtocolError."""
    return _number(MESSAGES, text, {"": 1}, "a number of messages such as 100000")


def parse_size_bytes(text: str) -> int:
    """`1048576`, `64m`, `2g`; ProtocolError."""
    return _number(BYTES, text, _UNITS_BYTES, "a size such as 1048576, 64m or 2g")


def parse_age_ms(text: str) -> int:
    """`600`, `90s`, `10m`, `2h`, `1d`, in ms; ProtocolError."""
    return 1000 * _number(AGE, text, _UNITS_S, "a time such as 600 (seconds), 90s, 10m, 2h or 1d")


def _number(key: str, text: str, units: Mapping[str, int], words: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18})([a-z]?)", text)
    number = 0 if match is None or match[2] not in units else int(match[1]) * units[match[2]]
    if not 0 < number <= _LONG_MAX // 1000:
        raise ProtocolError(f"{key}={text} is not {words}, above 0")
    return number
