"""OverflowRule: attributes as administrators write them, and those that contradict each other."""

from __future__ import annotations

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.overflow_rule import OverflowPolicy, OverflowRule

PRIORITY = {"message.type": "PRIORITY"}


def attributes(**keys: str) -> dict[str, str]:
    return {f"overflow.{key}": value for key, value in keys.items()}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, None),
        ({"message.type": "FIFO"}, None),
        (attributes(policy="reject", messages="5"), OverflowRule(OverflowPolicy.REJECT, messages=5)),
        (
            attributes(policy="drop-oldest", bytes="2g", age="10m"),
            OverflowRule(OverflowPolicy.DROP_OLDEST, size_bytes=2 << 30, age_ms=600_000),
        ),
        (attributes(policy="dead-letter", age="90"), OverflowRule(OverflowPolicy.DEAD_LETTER, age_ms=90_000)),
        (
            {**PRIORITY, **attributes(policy="drop-lowest-priority", messages="7")},
            OverflowRule(OverflowPolicy.DROP_LOWEST_PRIORITY, messages=7),
        ),
    ],
)
def test_what_attributes_say(given: dict[str, str], rule: OverflowRule | None) -> None:
    assert OverflowRule.of(given) == rule


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (attributes(policy="reject"), "needs a limit"),
        (attributes(messages="5"), "no effect without overflow.policy"),
        (attributes(policy="drop", messages="5"), "is unknown: it is one of reject, drop-oldest"),
        (attributes(policy="drop-lowest-priority", messages="5"), "needs a topic of message.type=PRIORITY"),
        ({**PRIORITY, **attributes(policy="drop-lowest-priority", age="5", messages="5")}, "cannot be kept"),
        (attributes(policy="reject", messages="0"), "not a number of messages"),
        (attributes(policy="reject", messages="1k"), "not a number of messages"),
        (attributes(policy="reject", bytes="-1"), "not a size"),
        (attributes(policy="reject", bytes="1t"), "not a size"),
        (attributes(policy="reject", age="5 minutes"), "not a time"),
        (attributes(policy="reject", age="9" * 19), "not a time"),
    ],
)
def test_contradictions_are_refused_with_what_to_do(given: dict[str, str], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        OverflowRule.of(given)
