"""Message types: which one a message has, which ones a topic takes."""

from __future__ import annotations

import pytest

from kourou.proxy.messages.message_types import accepted_types, check_type, type_of_properties
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code, MessageType


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, MessageType.NORMAL),
        ({"TRAN_MSG": "false"}, MessageType.NORMAL),
        ({"_SYS_MSG_PRIORITY_": "1", "__LITE_TOPIC": "l"}, MessageType.PRIORITY),
        ({"__LITE_TOPIC": "l"}, MessageType.LITE),
        ({"__SHARDINGKEY": "g", "_SYS_MSG_PRIORITY_": "1"}, MessageType.FIFO),
        ({"DELAY": "3", "__SHARDINGKEY": "g"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "3"}, MessageType.DELAY),
        ({"TIMER_DELAY_SEC": "3"}, MessageType.DELAY),
        ({"TIMER_DELAY_MS": "3"}, MessageType.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, MessageType.TRANSACTION),
    ],
)
def test_type_of_properties(properties: dict[str, str], expected: MessageType) -> None:
    assert type_of_properties(properties) is expected


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        (None, "NORMAL FIFO DELAY TRANSACTION"),
        ({}, "NORMAL"),
        ({"queue.type": "BatchCQ"}, "NORMAL"),
        ({"message.type": "FIFO"}, "FIFO"),
        ({"message.type": "PRIORITY"}, "PRIORITY"),
        ({"message.type": "LITE"}, "LITE"),
        ({"message.type": "MIXED"}, "NORMAL FIFO DELAY TRANSACTION"),
        ({"message.type": "UNSPECIFIED"}, "MESSAGE_TYPE_UNSPECIFIED"),
    ],
)
def test_accepted_types(attributes: dict[str, str] | None, names: str) -> None:
    assert " ".join(kind.name for kind in accepted_types(attributes)) == names


def test_a_topic_takes_its_type_only() -> None:
    check_type("t", {"message.type": "FIFO"}, MessageType.FIFO)
    with pytest.raises(StatusError) as refused:
        check_type("t", {"message.type": "FIFO"}, MessageType.NORMAL)
    assert refused.value.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    with pytest.raises(StatusError):
        check_type("t", {}, MessageType.DELAY)
    with pytest.raises(StatusError):
        check_type("t", {"message.type": "UNSPECIFIED"}, MessageType.NORMAL)


@pytest.mark.parametrize(
    ("topic", "attributes"),
    [("t", None), ("t", {"message.type": "MIXED"}), ("%RETRY%g", {}), ("%DLQ%g", {})],
)
def test_types_that_are_not_checked(topic: str, attributes: dict[str, str] | None) -> None:
    check_type(topic, attributes, MessageType.TRANSACTION)
