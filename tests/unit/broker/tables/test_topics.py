"""TopicConfigManager: system topics, automatic creation, changes, and files that Apache wrote."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kourou.errors import RequestError, StoreFormatError
from kourou.protocol.bodies import DataVersion, TopicConfig
from kourou.protocol.bodies.topics import TopicConfigSerializeWrapper
from kourou.protocol.codes import ResponseCode
from kourou.store.config_tables import TopicConfigTable, load_table
from tests.golden.config_files import FOLDERS
from tests.unit.broker.tables_kit import Tables

NOW_MS = 1_700_000_000_000


def make(root: Path, **keys: object) -> Tables:
    tables = Tables(root, **keys)
    tables.topics.load()
    return tables


def test_a_new_broker_makes_apaches_system_topics(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    assert {
        name: (config.read_queue_nums, config.write_queue_nums, config.perm)
        for name, config in topics.table.items()
    } == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    assert topics.data_version == DataVersion(timestamp=NOW_MS, counter=0)


def test_keys_decide_on_some_system_topics(tmp_path: Path) -> None:
    topics = make(
        tmp_path,
        auto_create_topic_enable=False,
        trace_topic_enable=True,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        timer_wheel_enable=False,
    ).topics
    assert topics.get("TBW102") is None
    assert topics.get("rmq_sys_wheel_timer") is None
    assert topics.table["RMQ_SYS_TRACE_TOPIC"].read_queue_nums == 1
    assert topics.table["DefaultCluster"].perm == topics.table["broker-a"].perm == 1


def test_system_names_cannot_be_the_users(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    for name in ("TBW102", "DefaultCluster", "broker-a", "rmq_sys_anything", "TRANS_CHECK_MAX_TIME_TOPIC"):
        assert topics.is_system(name), name
    assert not topics.is_system("orders")
    assert {"broker-a", "TBW102", "RMQ_SYS_TRACE_TOPIC", "SELF_TEST_TOPIC"} <= topics.system_topics


def test_a_send_makes_the_topic_like_the_default_and_registers_it_at_once(tmp_path: Path) -> None:
    tables = make(tmp_path)
    tables.clock.advance(5)
    created = tables.topics.create_in_send("orders", "TBW102", "10.0.0.9:1", 4, 2)
    assert created == TopicConfig("orders", 4, 4, 6, topic_sys_flag=2)
    assert tables.topics.get("orders") is created
    assert tables.registered == [created]
    assert tables.topics.data_version == DataVersion(timestamp=NOW_MS + 5, counter=1)
    assert tables.topics.is_dirty
    assert tables.topics.create_in_send("orders", "TBW102", "10.0.0.9:1", 9, 0) is created
    assert len(tables.registered) == 1


@pytest.mark.parametrize(("asked", "made"), [(3, 3), (16, 8), (-1, 0)])
def test_a_topic_has_at_most_the_queues_of_the_default(tmp_path: Path, asked: int, made: int) -> None:
    created = make(tmp_path).topics.create_in_send("orders", "TBW102", "10.0.0.9:1", asked, 0)
    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums) == (made, made)


def test_topics_inherit_only_from_topics_with_that_permission(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    assert topics.create_in_send("orders", "SELF_TEST_TOPIC", "10.0.0.9:1", 4, 0) is None
    assert topics.create_in_send("orders", "missing", "10.0.0.9:1", 4, 0) is None
    assert topics.create_in_send("orders", "DefaultCluster", "10.0.0.9:1", 4, 0) is not None


def test_automatic_creation_follows_the_key_while_running(tmp_path: Path) -> None:
    tables = make(tmp_path, auto_create_topic_enable=False)
    assert tables.topics.create_in_send("orders", "TBW102", "10.0.0.9:1", 4, 0) is None
    tables.set_keys(auto_create_topic_enable=True)
    assert tables.topics.create_in_send("orders", "TBW102", "10.0.0.9:1", 4, 0) is not None
    tables.set_keys(auto_create_topic_enable=False)
    assert tables.topics.create_in_send("others", "TBW102", "10.0.0.9:1", 4, 0) is None


def test_retry_topics_follow_the_order_of_what_they_retry(tmp_path: Path) -> None:
    tables = make(tmp_path)
    created = tables.topics.create_in_send_back("%RETRY%CG", 1, 6)
    assert created == TopicConfig("%RETRY%CG", 1, 1, 6)
    assert tables.topics.create_in_send_back("%RETRY%CG", 1, 6, is_order=True).order
    assert tables.topics.create_in_send_back("%RETRY%CG", 1, 6).order
    assert not created.order, "a configuration that was handed out does not change"
    assert len(tables.registered) == 2


def test_an_update_changes_attributes_and_keeps_the_others(tmp_path: Path) -> None:
    tables = make(tmp_path)
    topics = tables.topics
    topics.update(TopicConfig("orders", 4, 4), "+message.type=FIFO,+cleanup.policy=DELETE")
    topics.update(TopicConfig("orders", 8, 8, attributes={"-message.type": ""}))
    assert topics.get("orders") == TopicConfig("orders", 8, 8, attributes={"cleanup.policy": "DELETE"})
    counter = topics.data_version.counter
    topics.update(TopicConfig("orders", 8, 8))
    assert topics.data_version.counter == counter, "nothing changed"
    assert len(tables.registered) == 2


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            None,
            "+message.type=NONE",
            "value is not in set: [DELAY, FIFO, MIXED, NORMAL, PRIORITY, TRANSACTION, UNSPECI",
        ),
        (None, "+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        (
            None,
            "+reserve.time=soon",
            "value is not in range(-1, 9223372036854775807); reserve.time was given as 'soon'",
        ),
        (None, "+nothing=1", "unsupported key: nothing"),
        (None, "message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        (None, "message.type", "delete attribute format is wrong: message.type"),
        (None, "+message.type=FIFO,+message.type=DELAY", "key duplication: +message.type"),
        (None, "-message.type", "only add attribute is supported while creating topic. key: message.type"),
        (None, "+=1", "kv string format wrong."),
        ("", "-message.type", "attempt to delete a nonexistent key: message.type"),
        ("", "+message.type=FIFO,-message.type", "alter duplication key."),
        ("+queue.type=SimpleCQ", "+queue.type=BatchCQ", "attempt to update an unchangeable attribute."),
    ],
)
def test_attributes_are_refused_in_apaches_words(
    tmp_path: Path, first: str | None, second: str, words: str
) -> None:
    topics = make(tmp_path).topics
    if first is not None:
        topics.update(TopicConfig("orders", 4, 4), first)
    before = topics.get("orders")
    with pytest.raises(RequestError) as refused:
        topics.update(TopicConfig("orders", 8, 8), second)
    assert refused.value.remark.startswith(words)
    assert refused.value.response_code == ResponseCode.SYSTEM_ERROR
    assert topics.get("orders") == before


def test_a_retry_topic_grows_with_the_topics_whose_queues_it_keeps(tmp_path: Path) -> None:
    tables = make(tmp_path)
    topics = tables.topics
    topics.update(TopicConfig("orders", 8, 8), "+message.type=PRIORITY")
    topics.update(TopicConfig("small", 2, 2))
    topics.create_in_send_back("%RETRY%CG", 1, 6)
    assert topics.separate_retries("%RETRY%CG", ["gone"]) == TopicConfig("%RETRY%CG", 1, 1, 6)
    assert topics.separate_retries("%RETRY%CG", ["small", "orders"]) == TopicConfig("%RETRY%CG", 8, 8, 6)
    assert tables.registered[-1] == topics.get("%RETRY%CG") == TopicConfig("%RETRY%CG", 8, 8, 6)
    counter = topics.data_version.counter
    topics.separate_retries("%RETRY%CG", ["small"])
    assert topics.data_version.counter == counter, "nothing changed"


def test_queues_are_priorities_by_the_type_of_the_topic(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    topics.update(TopicConfig("orders", 8, 8), "+message.type=PRIORITY")
    topics.update(TopicConfig("plain", 8, 8), "+message.type=FIFO")
    assert [topics.has_priorities(topic) for topic in ("orders", "plain", "gone")] == [True, False, False]


def test_a_deleted_topic_is_registered_as_gone(tmp_path: Path) -> None:
    tables = make(tmp_path)
    tables.topics.update(TopicConfig("orders"))
    assert tables.topics.delete("orders")
    assert not tables.topics.delete("orders")
    assert tables.topics.get("orders") is None
    assert tables.registered[-1] is None
    assert tables.topics.data_version.counter == 2


def test_order_topics_of_the_name_server_stay_order_topics(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    topics.update(TopicConfig("orders"))
    topics.update_order_config({"orders": "broker-a:4", "elsewhere": "broker-b:4"})
    assert topics.is_order("orders")
    assert not topics.is_order("elsewhere")
    counter = topics.data_version.counter
    topics.update_order_config({})
    assert topics.is_order("orders")
    assert topics.data_version.counter == counter


def test_routes_show_what_topic_and_broker_both_allow(tmp_path: Path) -> None:
    tables = make(tmp_path)
    tables.topics.update(TopicConfig("orders"))
    assert tables.topics.wrapper(registered=True).topic_config_table["TBW102"].perm == 7
    tables.set_keys(broker_permission=4)
    wrapper = tables.topics.wrapper(["orders", "missing"], registered=True)
    assert {name: config.perm for name, config in wrapper.topic_config_table.items()} == {"orders": 4}
    assert wrapper.data_version == tables.topics.data_version
    assert tables.topics.wrapper().topic_config_table["orders"].perm == 6


def test_what_is_persisted_is_loaded_again(tmp_path: Path) -> None:
    tables = make(tmp_path)
    tables.topics.create_in_send("orders", "TBW102", "10.0.0.9:1", 4, 0)
    tables.topics.persist()
    assert not tables.topics.is_dirty
    again = make(tmp_path).topics
    assert again.table == tables.topics.table
    assert again.data_version == tables.topics.data_version
    assert not again.is_dirty


def test_system_topics_that_a_file_lacks_give_it_a_new_version(tmp_path: Path) -> None:
    tables = make(tmp_path)
    tables.topics.persist()
    topics = make(tmp_path, broker_name="broker-b").topics
    assert topics.get("broker-b") is not None
    assert topics.is_dirty
    assert topics.data_version.counter == 1


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_of_apache_are_loaded_and_written_for_apache(tmp_path: Path, folder: Path) -> None:
    raw = (folder / "topics.json").read_bytes()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(raw)
    topics = make(tmp_path, trace_topic_enable=True).topics
    theirs = load_table(raw, TopicConfigTable)
    assert topics.table.items() >= theirs.topic_config_table.items()
    assert load_table(topics.dump(), TopicConfigTable).topic_config_table == topics.table
    if "5.5.0" in folder.name:
        assert topics.data_version == theirs.data_version, "5.5.0 has all our system topics"


def test_a_damaged_file_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":[1')
    with pytest.raises(StoreFormatError, match=r"topics\.json: damaged"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a.b", "The specified topic: a.b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic: a\n, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("t" * 128, f"The specified topic: {'t' * 128}, is longer than topic max length: 127"),
        ("t" * 301, f"The specified topic: {'t' * 300}…, is longer than topic max length: 127"),
        (
            "%RETRY%" + "g" * 249,
            f"The specified topic is DLQ or Retry topic: %RETRY%{'g' * 249}, and it's longer than topic "
            "max length: 255",
        ),
    ],
)
def test_bad_names_are_refused_in_apaches_words(tmp_path: Path, topic: str, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        make(tmp_path).topics.check_topic_name(topic)
    assert refused.value.remark == words
    assert refused.value.response_code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("topic", ["t" * 127, "%DLQ%" + "g" * 250, "ns%orders", "a|b_c-D9"])
def test_good_names_pass(tmp_path: Path, topic: str) -> None:
    make(tmp_path).topics.check_topic_name(topic)


@pytest.mark.parametrize("queue_nums", [65_537, 2_000_000_000, -1])
def test_a_topic_has_no_more_queues_than_needed(tmp_path: Path, queue_nums: int) -> None:
    topics = make(tmp_path).topics
    with pytest.raises(RequestError, match=r"The topic\[%RETRY%CG\] cannot have -?\d+ queues") as caught:
        topics.create_in_send_back("%RETRY%CG", queue_nums, 6)
    assert caught.value.response_code == ResponseCode.INVALID_PARAMETER
    assert topics.get("%RETRY%CG") is None
    assert topics.create_in_send_back("%RETRY%CG", 65_536, 6).read_queue_nums == 65_536


def test_the_log_has_words_of_rocketmq_not_of_python(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics = make(tmp_path).topics
    with caplog.at_level(logging.INFO):
        topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
        topics.update(TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=4, order=True))
        topics.delete("T")
    made, changed, deleted = caplog.messages
    assert made.startswith('topic created: topicName="T", readQueueNums=4, writeQueueNums=4, perm=6, ')
    assert changed == "topic T changed: readQueueNums=8 (was 4), order=true (was false)"
    assert deleted.startswith('topic deleted: topicName="T", readQueueNums=8, ')


# -- a slave's table ---------------------------------------------------------------------------------------


def announce(counter: int, *names: str) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper(
        topic_config_table={name: TopicConfig(topic_name=name, read_queue_nums=4) for name in names},
        data_version=DataVersion(counter=counter),
    )


def test_a_slave_deletes_what_its_master_had_announced_and_nothing_else(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    assert topics.follow(announce(1, "kept", "deleted")) == set()  # system topics are no user's
    assert topics.follow(announce(2, "kept")) == {"deleted"}
    assert set(topics.table) == {"kept"}


def test_a_topic_that_a_slave_has_messages_of_stays_until_it_is_announced(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    topics.follow(announce(1, "known"))
    topics.derive("new", 2)
    # The master's table may be older than the message.
    assert topics.follow(announce(1, "known")) == set()
    assert topics.table["new"].read_queue_nums == 3
    assert topics.follow(announce(2, "known")) == set()
    assert topics.is_derived("new")
    assert topics.follow(announce(3, "known", "new")) == set()
    assert topics.table["new"].read_queue_nums == 4 and not topics.is_derived("new")
    assert topics.follow(announce(4, "known")) == {"new"}


def test_a_system_topic_that_the_master_does_not_announce_is_not_derived(tmp_path: Path) -> None:
    topics = make(tmp_path).topics
    topics.follow(announce(1, "known"))
    assert not topics.is_derived("RMQ_SYS_TRANS_OP_HALF_TOPIC")
