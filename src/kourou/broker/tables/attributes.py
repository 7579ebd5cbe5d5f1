"""Attributes of topics and groups (5.x), and the changes that an administrator asks for.

A change is `+key=value` or `-key`; several are joined by commas. What is refused is a RequestError of
code SYSTEM_ERROR in the words of Apache's brokers. Not here: what the attributes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kourou.errors import RequestError
from kourou.protocol.codes import ResponseCode

MESSAGE_TYPE: Final = "message.type"
MIXED_MESSAGE_TYPE: Final = "MIXED"

_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its values are `choices`, or whole numbers from `low` on."""

    choices: frozenset[str] = frozenset()
    low: int = 0
    is_changeable: bool = True

    def check(self, value: str) -> None:
        """RequestError if this is no value of the attribute."""
        if self.choices:
            if value not in self.choices:
                raise _refusal(f"value is not in set: [{', '.join(sorted(self.choices))}]")
        elif not _is_long(value) or not self.low <= int(value) <= _LONG_MAX:
            raise _refusal(f"value is not in range({self.low}, {_LONG_MAX})")


TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "queue.type": Attribute(frozenset({"BatchCQ", "SimpleCQ"}), is_changeable=False),
    "cleanup.policy": Attribute(frozenset({"DELETE", "COMPACTION"}), is_changeable=False),
    MESSAGE_TYPE: Attribute(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED_MESSAGE_TYPE})
    ),
    "reserve.time": Attribute(low=-1),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {}
"""Groups have none yet; requests for one are rejected."""


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
            attribute.check(value)
            result[key] = value
        else:
            del result[key]
    return result


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
