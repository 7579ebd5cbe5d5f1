"""Attributes of topics and groups (5.x), and the changes that an administrator asks for.

A change is `+key=value` or `-key`; several are joined by commas. What is refused is a RequestError of
code SYSTEM_ERROR in the words of Apache's brokers. Attributes that only Kourou has (`overflow.…`) are
refused with INVALID_PARAMETER and what to set instead. Not here: what the attributes do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kourou.errors import ProtocolError, RequestError
from kourou.protocol import overflow_rule
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import is_dlq_topic
from kourou.protocol.overflow_rule import OverflowPolicy, OverflowRule
from kourou.protocol.priority import MESSAGE_TYPE, PRIORITY_TYPE

MIXED_MESSAGE_TYPE: Final = "MIXED"
PRIORITY_FACTOR: Final = "priority.factor"

T = TypeVar("T")
R = TypeVar("R")

_LONG_MAX: Final = 2**63 - 1
_SHOWN_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its values are `choices`, what `parse` takes without a ProtocolError, or whole numbers
    from `low` to `high`."""

    choices: frozenset[str] = frozenset()
    low: int = 0
    high: int = _LONG_MAX
    is_changeable: bool = True
    parse: Callable[[str], object] | None = None

    def check(self, key: str, value: str) -> None:
        """RequestError if this is no value of the attribute. Apache's words come first: people search for
        them."""
        given = f"; {key} was given as {value[:_SHOWN_CHARACTERS]!r}"
        if self.parse is not None:
            _checked(self.parse, value)
        elif self.choices:
            if value not in self.choices:
                raise _refusal(f"value is not in set: [{', '.join(sorted(self.choices))}]{given}")
        elif not _is_long(value) or not self.low <= int(value) <= self.high:
            raise _refusal(f"value is not in range({self.low}, {self.high}){given}")


TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "queue.type": Attribute(frozenset({"BatchCQ", "SimpleCQ"}), is_changeable=False),
    "cleanup.policy": Attribute(frozenset({"DELETE", "COMPACTION"}), is_changeable=False),
    MESSAGE_TYPE: Attribute(
        frozenset(
            {
                *("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"),
                *(MIXED_MESSAGE_TYPE, PRIORITY_TYPE),
            }
        )
    ),
    "reserve.time": Attribute(low=-1),
    overflow_rule.POLICY: Attribute(parse=overflow_rule.check_policy),
    overflow_rule.MESSAGES: Attribute(parse=overflow_rule.parse_count),
    overflow_rule.BYTES: Attribute(parse=overflow_rule.parse_size_bytes),
    overflow_rule.AGE: Attribute(parse=overflow_rule.parse_age_ms),
}
_MAX_FACTOR: Final = 100
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {PRIORITY_FACTOR: Attribute(high=_MAX_FACTOR)}


def priority_factor(attributes: Mapping[str, str] | None) -> int:
    """In what percentage of its pops a group with these attributes reads priorities in their order."""
    text = (attributes or {}).get(PRIORITY_FACTOR, "")
    # Apache's brokers may have written the table.
    return int(text) if _is_long(text) else _MAX_FACTOR


def parse_changes(text: str | None) -> dict[str, str]:
    """Signed key to value, of `+key=value,-key`."""
    changes: dict[str, str] = {}
    for change in text.split(",") if text else ():
        key, equals, value = change.partition("=")
        if equals and "+" not in key:
            raise _refusal(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise _refusal(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise _refusal(f"key duplication: {key}")
        changes[key] = value
    return changes


def apply_changes(
    current: Mapping[str, str] | None, changes: Mapping[str, str], known: Mapping[str, Attribute]
) -> dict[str, str]:
    """The attributes after `changes` to `current`, which is None for something that is made now."""
    result = dict(current or {})
    if len({signed[1:] for signed in changes}) < len(changes):
        raise _refusal("alter duplication key.")
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        _check_change(sign, key, current)
        attribute = known.get(key)
        if attribute is None:
            raise _refusal(f"unsupported key: {key}")
        if current is not None and not attribute.is_changeable:
            raise _refusal(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "+":
            attribute.check(key, value)
            result[key] = value
        else:
            del result[key]
    return result


def check_topic_attributes(topic: str, attributes: Mapping[str, str]) -> None:
    """RequestError INVALID_PARAMETER if the attributes of a topic contradict each other."""
    rule = _checked(OverflowRule.of, attributes)
    if rule is not None and rule.policy is OverflowPolicy.DEAD_LETTER and is_dlq_topic(topic):
        raise _contradiction(
            f"{overflow_rule.POLICY}={rule.policy}: {topic} has dead letters already; use "
            f"{OverflowPolicy.REJECT} or {OverflowPolicy.DROP_OLDEST}"
        )


def _checked(parse: Callable[[T], R], value: T) -> R:
    try:
        return parse(value)
    except ProtocolError as error:
        raise _contradiction(str(error)) from None


def _contradiction(remark: str) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, remark)


def _check_change(sign: str, key: str, current: Mapping[str, str] | None) -> None:
    if not key or "+" in key or "-" in key:
        raise _refusal("kv string format wrong.")
    if sign == "+":
        return
    if current is None:
        raise _refusal(f"only add attribute is supported while creating topic. key: {key}")
    if sign != "-":
        raise _refusal(f"wrong format key: {key}")
    if key not in current:
        raise _refusal(f"attempt to delete a nonexistent key: {key}")


def _is_long(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def _refusal(remark: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
