"""Kinds of topics: by name, by attribute, and where brokers differ."""

from __future__ import annotations

import pytest

from kourou.admin.session import BrokerAddress
from kourou.admin.topic_kinds import TopicKind, own_topics, topic_kind
from kourou.protocol.bodies import TopicConfig

OWN = own_topics([BrokerAddress("Main", "broker-a", 0, "127.0.0.1:1")])


@pytest.mark.parametrize(
    ("topic", "types", "kind"),
    [
        ("Orders", [None], TopicKind.NORMAL),
        ("Orders", ["FIFO", "FIFO"], TopicKind.FIFO),
        ("Orders", ["FIFO", None], TopicKind.UNSPECIFIED),
        ("Orders", ["OF_A_LATER_VERSION"], TopicKind.UNSPECIFIED),
        ("Orders", ["RETRY"], TopicKind.UNSPECIFIED),
        ("%RETRY%billing", [None], TopicKind.RETRY),
        ("%DLQ%billing", [None], TopicKind.DLQ),
        ("%LMQ%light", [None], TopicKind.SYSTEM),
        ("rmq_sys_wheel_timer", [None], TopicKind.SYSTEM),
        ("broker-a", [None], TopicKind.SYSTEM),
        ("Main_REPLY_TOPIC", [None], TopicKind.SYSTEM),
    ],
)
def test_the_kind_of_a_topic(topic: str, types: list[str | None], kind: TopicKind) -> None:
    configs = [TopicConfig(topic, attributes={"message.type": text} if text else {}) for text in types]
    assert topic_kind(topic, configs, OWN) is kind
