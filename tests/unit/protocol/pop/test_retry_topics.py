"""Names of POP's topics."""

from __future__ import annotations

import pytest

from kourou.protocol.pop.retry_topics import (
    PopTopicKind,
    pop_retry_topics,
    popped_topic,
    retry_groups,
    revive_topic,
    topic_of_kind,
)


def test_retry_topics_have_two_names() -> None:
    assert pop_retry_topics("T", "G") == ("%RETRY%G_T", "%RETRY%G+T")
    assert topic_of_kind("T", "G", PopTopicKind.NORMAL) == "T"
    assert topic_of_kind("T", "G", PopTopicKind.RETRY_V1) == "%RETRY%G_T"
    assert topic_of_kind("T", "G", PopTopicKind.RETRY_V2) == "%RETRY%G+T"


@pytest.mark.parametrize("topic", ["my_topic", "T"])
@pytest.mark.parametrize("group", ["my_group", "G"])
def test_a_retry_topic_leads_back_to_the_topic(topic: str, group: str) -> None:
    for kind in PopTopicKind:
        name = topic_of_kind(topic, group, kind)
        assert popped_topic(name, group) == topic
        assert PopTopicKind.of(name) is kind


def test_a_group_is_told_from_a_retry_topic_of_pop_where_the_name_allows_it() -> None:
    topics = ["Jobs", "%RETRY%workers", "%RETRY%workers_Jobs", "%RETRY%workers+Jobs", "%RETRY%my_group"]
    assert retry_groups(topics) == ({"workers", "my_group"}, {"workers_Jobs"})
    assert retry_groups(["%RETRY%a_", "%RETRY%a", "%RETRY%_"]) == ({"a_", "a", "_"}, set())


def test_the_revive_topic_is_of_the_cluster() -> None:
    assert revive_topic("DefaultCluster") == "rmq_sys_REVIVE_LOG_DefaultCluster"
