"""Names: what topics and groups may be called, RocketMQ's own, and namespaces."""

from __future__ import annotations

import pytest

from kourou.protocol.names import (
    dlq_topic,
    group_problem,
    is_dlq_topic,
    is_lmq,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    namespace_of,
    reply_topic,
    retry_topic,
    send_topic_problem,
    topic_problem,
    user_group_problem,
    without_namespace,
    wrap_namespace,
)


@pytest.mark.parametrize(
    "topic", ["TopicTest", "a", "_-", "Odd%Topic|x_1-A", "t" * 127, "%RETRY%" + "g" * 248]
)
def test_topics_that_are_allowed(topic: str) -> None:
    assert topic_problem(topic) is None


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ("", "the topic is blank"),
        ("  ", "the topic is blank"),
        ("a b", "topic 'a b' contains ' '; allowed are letters a-z and A-Z, digits, _ - % |"),
        ("a.b", "contains '.'"),
        ("主题", "contains '主'"),
        ("topic\n", "contains '\\n'"),
        ("t" * 128, "has 128 characters; at most 127 are allowed"),
        ("%DLQ%" + "g" * 251, "has 256 characters; at most 255 are allowed"),
    ],
)
def test_topic_problems_say_what_and_what_is_allowed(topic: str, problem: str) -> None:
    assert problem in (topic_problem(topic) or "")


def test_a_name_of_megabytes_gives_a_short_message() -> None:
    assert len(topic_problem("x" * 5_000_000) or "") < 500


def test_group_limits() -> None:
    assert group_problem("g" * 120) is None
    assert "has 121 characters; at most 120" in (group_problem("g" * 121) or "")
    assert "group 'a/b' contains '/'" in (group_problem("a/b") or "")
    assert user_group_problem("orders") is None
    assert "choose a name of your own" in (user_group_problem("DEFAULT_PRODUCER") or "")
    assert "choose a name of your own" in (user_group_problem("DEFAULT_CONSUMER") or "")
    assert "blank" in (user_group_problem("") or "")


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "rmq_sys_wheel_timer",
    ],
)
def test_producers_may_not_send_to_the_brokers_own_topics(topic: str) -> None:
    assert topic_problem(topic) is None
    assert "written by brokers only" in (send_topic_problem(topic) or "")


def test_producers_may_send_to_other_system_topics() -> None:
    assert send_topic_problem("RMQ_SYS_TRACE_TOPIC") is None
    assert send_topic_problem("TBW102") is None
    assert "blank" in (send_topic_problem("") or "")


def test_system_names() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("CHECKPOINT_TOPIC")
    assert is_system_topic("rmq_sys_wheel_timer")
    assert not is_system_topic("TopicTest")
    assert not is_system_topic("RMQ_SYS_MINE")
    assert is_system_group("CID_RMQ_SYS_ANY")
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("orders")


def test_derived_topics() -> None:
    assert retry_topic("orders") == "%RETRY%orders"
    assert dlq_topic("orders") == "%DLQ%orders"
    assert reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"
    assert is_retry_topic("%RETRY%orders") and not is_retry_topic("%DLQ%orders")
    assert is_dlq_topic("%DLQ%orders") and not is_dlq_topic("orders")
    assert is_lmq("%LMQ%123") and not is_lmq("LMQ")


@pytest.mark.parametrize(
    ("bare", "wrapped"),
    [
        ("TopicTest", "ns%TopicTest"),
        ("%RETRY%orders", "%RETRY%ns%orders"),
        ("%DLQ%orders", "%DLQ%ns%orders"),
        ("TBW102", "TBW102"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_namespaces_wrap_and_come_off(bare: str, wrapped: str) -> None:
    assert wrap_namespace("ns", bare) == wrapped
    assert wrap_namespace("ns", wrapped) == wrapped
    assert wrap_namespace("", bare) == bare
    assert without_namespace(wrapped) == bare
    assert without_namespace(wrapped, "ns") == bare
    assert without_namespace(wrapped, "other") == wrapped
    assert namespace_of(wrapped) == ("ns" if wrapped != bare else "")
    assert namespace_of(bare) == ""
