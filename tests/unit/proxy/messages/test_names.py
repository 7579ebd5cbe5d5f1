"""Names in requests: what is no name, and what belongs to RocketMQ, has a code of its own."""

from __future__ import annotations

import pytest

from kourou.proxy.messages.names import group_name, topic_name
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code, Resource


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 128, "TBW102", "rmq_sys_wheel_timer", "ü"])
def test_topics_that_are_refused(name: str) -> None:
    with pytest.raises(StatusError) as refused:
        topic_name(Resource(name=name))
    assert refused.value.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, "CID_RMQ_SYS_TRANS", "DEFAULT_CONSUMER"])
def test_groups_that_are_refused(name: str) -> None:
    with pytest.raises(StatusError) as refused:
        group_name(Resource(name=name))
    assert refused.value.code == Code.ILLEGAL_CONSUMER_GROUP


@pytest.mark.parametrize("name", ["orders", "%RETRY%group", "%DLQ%group", "ns%orders"])
def test_names(name: str) -> None:
    assert topic_name(Resource(resource_namespace="ignored", name=name)) == name
    assert group_name(Resource(name="g")) == "g"


def test_namespaces_are_short() -> None:
    for check, code in ((topic_name, Code.ILLEGAL_TOPIC), (group_name, Code.ILLEGAL_CONSUMER_GROUP)):
        with pytest.raises(StatusError) as refused:
            check(Resource(resource_namespace="n" * 256, name="orders"))
        assert refused.value.code == code
