"""Apache's mqadmin, of both versions, at our broker: what it prints is what it prints at Apache's broker.

Ours says what 5.5.0 says. Where 4.9.7 says something else, a test tells what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from tests.interop.kit import apache, wire
from tests.interop.kit.broker_pair import (
    CLIENT_OF,
    GROUP,
    MESSAGES,
    PRODUCER_GROUP,
    TOPIC,
    BrokerPair,
    Side,
    running_pair,
)
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.kourou_broker import BASELINE_VERSION
from tests.interop.kit.kourou_namesrv import IS_BASELINE
from tests.interop.kit.messaging_session import Messaging, bodies
from tests.interop.kit.mqadmin_output import configuration, masked, without_moments

pytestmark = pytest.mark.interop

_NAME_IN_TABLE: Final = re.compile(r"^(\w+) *:", re.MULTILINE)
# Rates, and how far timers are behind.
_RATES: Final = re.compile(r"\d+\.\d\d(?=[ (\n])|\d+-\d+(?=\(\d+\.\dw)")
# Properties that a broker of 5.x keeps in a message and one of 4.9 does not; sizes follow from them.
_KEPT_BY_5: Final = re.compile(r"(?:WAIT|TRACE_ON|MSG_REGION)=\w+(?:, )?|(?<=storeSize=)\d+")
_PROPERTIES: Final = re.compile(r"(roperties[:=] ?)\{(.*?)\}")
# Apache 5.5.0 has two topics for transactions in RocksDB, which ours has no use for.
_TOPICS_OF_ROCKSDB: Final = {"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"}
_OFFSETS: Final = re.compile(r"^broker-a +(\d) +(\d+) *$", re.MULTILINE)


@pytest.fixture(scope="module", params=apache.VERSIONS)
def pair(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    admins: dict[str, AdminSession],
    java_messaging_clients: dict[str, Messaging],
) -> Iterator[BrokerPair]:
    version = request.param
    if IS_BASELINE and version != BASELINE_VERSION:
        pytest.skip(f"the baseline is {BASELINE_VERSION}")
    client = java_messaging_clients[CLIENT_OF[version]]
    work_dir = tmp_path_factory.mktemp(f"broker-admin-{version}")
    with running_pair(version, work_dir, admins[version], client) as running:
        yield running


def says_as_5(pair: BrokerPair) -> bool:
    """Whether Apache's broker of this pair is one of 5.x, as ours is."""
    return pair.version.startswith("5")


def is_old_baseline(pair: BrokerPair) -> bool:
    """Whether 4.9.7 stands in for ours, and does not say what 5.5.0 says."""
    return IS_BASELINE and not says_as_5(pair)


# -- the cluster and its broker ------------------------------------------------------------------------------


def test_cluster_list(pair: BrokerPair) -> None:
    ours, theirs = (_RATES.sub("N", text) for text in pair.texts("clusterList"))
    version = re.compile(r"V\d_\d_\d")
    # 4.9.7 takes a broker without full files for half a million hours old.
    age = re.compile(r"\S+ (?=\S+( true)?$)", re.MULTILINE)
    assert age.sub("AGE ", version.sub("V", ours)) == age.sub("AGE ", version.sub("V", theirs))
    assert re.search(r"^DefaultCluster broker-a 0 BROKER V\d_\d_\d N\(0,0ms\) N\(0,0ms", ours, re.MULTILINE)


def test_cluster_list_with_totals(pair: BrokerPair) -> None:
    for side in pair.sides:
        shown = pair.run(side, "clusterList", "-m").stdout
        assert re.search(r"^DefaultCluster +broker-a +0 +0 +\d+ +\d+$", shown, re.MULTILINE)


def test_broker_status_has_every_figure(pair: BrokerPair) -> None:
    ours, theirs = (pair.run(side, "brokerStatus", "-b", side.broker.address).stdout for side in pair.sides)
    assert set(_NAME_IN_TABLE.findall(theirs)) <= set(_NAME_IN_TABLE.findall(ours))
    for name in ("msgPutTotalTodayNow", "putMessageTimesTotal"):
        assert int(_status(ours)[name]) >= MESSAGES
    assert int(_status(ours)["dispatchBehindBytes"]) == 0
    assert re.fullmatch(r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]", _status(ours)["runtime"])


def _status(stdout: str) -> dict[str, str]:
    rows = (line.partition(":") for line in stdout.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def test_broker_status_of_a_cluster(pair: BrokerPair) -> None:
    for side in pair.sides:
        shown = pair.run(side, "brokerStatus", "-c", "DefaultCluster").stdout
        assert re.search(rf"^{side.broker.address} +commitLogMaxOffset +: \d+", shown, re.MULTILINE)


def test_configuration_has_the_keys_of_apache(pair: BrokerPair) -> None:
    ours, theirs = (
        configuration(pair.run(side, "getBrokerConfig", "-b", side.broker.address).stdout)
        for side in pair.sides
    )
    if says_as_5(pair):
        # Sizes of pools that ours does not have follow from the machine at Apache's.
        missing = {key for key in theirs.keys() - ours.keys() if not key.endswith("ThreadPoolNums")}
        # The value of this one may be a token.
        assert missing == {"metricsGrpcExporterHeader"}
    for key in ("brokerName", "brokerClusterName", "brokerId", "flushDiskType", "fileReservedTime"):
        assert ours[key] == theirs[key]
    assert ours["listenPort"] == str(pair.ours.broker.port)


def test_configuration_is_updated(pair: BrokerPair) -> None:
    text = pair.same("updateBrokerConfig", "-b", "BROKER", "-k", "flushDelayOffsetInterval", "-v", "9000")
    assert text.startswith("update broker config success, BROKER\n")
    for side in pair.sides:
        shown = configuration(pair.run(side, "getBrokerConfig", "-b", side.broker.address).stdout)
        assert shown["flushDelayOffsetInterval"] == "9000"
    pair.same("updateBrokerConfig", "-c", "DefaultCluster", "-k", "flushDelayOffsetInterval", "-v", "10000")


@pytest.mark.skipif(IS_BASELINE, reason="ours differs from Apache's on purpose")
def test_an_unknown_key_is_refused_and_ours_says_which_is_near(pair: BrokerPair) -> None:
    """Apache answers success and changes nothing."""
    command = ("updateBrokerConfig", "-b", "BROKER", "-k", "flushDiskTyp", "-v", "SYNC_FLUSH")
    ours, theirs = pair.texts(*command)
    assert "update broker config success" in theirs
    assert "unknown key flushDiskTyp; did you mean flushDiskType?" in ours


def test_a_key_that_would_move_files_is_refused(pair: BrokerPair) -> None:
    """4.9.7 takes it."""
    command = ("updateBrokerConfig", "-b", "BROKER", "-k", "brokerConfigPath", "-v", "elsewhere")
    if says_as_5(pair):
        pair.same(*command)
    if not is_old_baseline(pair):
        assert "CODE: 16 DESC: Can not update config in black list." in pair.texts(*command)[0]


@pytest.mark.skipif(IS_BASELINE, reason="ours differs from Apache's on purpose")
def test_a_bad_value_is_refused_and_ours_says_why(pair: BrokerPair) -> None:
    """Apache answers success and goes on with the old value."""
    command = ("updateBrokerConfig", "-b", "BROKER", "-k", "fileReservedTime", "-v", "many")
    ours, theirs = pair.texts(*command)
    assert "update broker config success" in theirs
    assert "fileReservedTime=many: must be a whole number" in ours


def test_cleaning(pair: BrokerPair) -> None:
    assert pair.same("cleanExpiredCQ", "-b", "BROKER").startswith("success")
    assert pair.same("cleanUnusedTopic", "-b", "BROKER").startswith("success")
    if says_as_5(pair):
        assert pair.same("deleteExpiredCommitLog", "-b", "BROKER").startswith("success")


# -- topics --------------------------------------------------------------------------------------------------


def test_topics_are_those_of_apache(pair: BrokerPair) -> None:
    ours, theirs = (set(pair.run(side, "topicList").stdout.split()) for side in pair.sides)
    assert theirs - _TOPICS_OF_ROCKSDB <= ours
    if says_as_5(pair):
        assert ours - _TOPICS_OF_ROCKSDB == theirs - _TOPICS_OF_ROCKSDB
    assert {TOPIC, "TBW102", "broker-a", f"%RETRY%{GROUP}"} <= ours


def test_topics_by_cluster(pair: BrokerPair) -> None:
    for side in pair.sides:
        shown = pair.run(side, "topicList", "-c").stdout
        assert re.search(rf"^DefaultCluster +{TOPIC} +{GROUP} *$", shown, re.MULTILINE)


def test_topic_status(pair: BrokerPair) -> None:
    text = pair.same("topicStatus", "-t", TOPIC)
    assert text.startswith("#Broker Name #QID #Min Offset #Max Offset #Last Updated\n")
    assert re.search(r"^broker-a 3 0 2 TIME$", text, re.MULTILINE)
    pair.same("topicStatus", "-t", "NoSuchTopic")


def test_a_topic_is_created_changed_and_deleted(pair: BrokerPair) -> None:
    created = pair.same("updateTopic", "-b", "BROKER", "-t", "Made", "-r", "4", "-w", "2")
    assert created.startswith(
        "create topic to BROKER success.\nTopicConfig [topicName=Made, readQueueNums=4, "
    )
    _wait_route(pair, "Made")
    assert pair.same("topicRoute", "-t", "Made").count('"queueDatas"') == 1
    if says_as_5(pair):
        # 4.9.7 leaves out queues that are read only.
        pair.same("topicStatus", "-t", "Made")
    pair.same("updateTopicPerm", "-t", "Made", "-b", "BROKER", "-p", "4")
    pair.same("updateTopic", "-c", "DefaultCluster", "-t", "Made", "-o", "true", "-r", "8", "-w", "8")
    deleted = pair.same("deleteTopic", "-c", "DefaultCluster", "-t", "Made")
    assert deleted.startswith("delete topic [Made] from cluster [DefaultCluster] success.\n")
    assert "CODE: 17" in pair.same("topicRoute", "-t", "Made")
    pair.same("deleteTopic", "-c", "DefaultCluster", "-t", "NoSuchTopic")


def _wait_route(pair: BrokerPair, topic: str) -> None:
    for side in pair.sides:
        wait_until(partial(_has_route, pair, side, topic), timeout_s=15, what=f"the route of {topic}")


def _has_route(pair: BrokerPair, side: Side, topic: str) -> bool:
    return pair.run(side, "topicRoute", "-t", topic).stdout.strip() != ""


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("bad name!", "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("SCHEDULE_TOPIC_XXXX", "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
        ("n" * 128, "longer than"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(pair: BrokerPair, topic: str, words: str) -> None:
    """With CODE 29; 4.9.7 says CODE 1."""
    ours, theirs = pair.texts("updateTopic", "-b", "BROKER", "-t", topic)
    assert words in ours
    assert "create topic to BROKER success" not in theirs
    if says_as_5(pair):
        assert ours == theirs


def test_attributes_of_a_topic(pair: BrokerPair) -> None:
    if not says_as_5(pair):
        pytest.skip("mqadmin of 4.9.7 has no attributes")
    made = pair.same("updateTopic", "-b", "BROKER", "-t", "Attributed", "-a", "+message.type=FIFO")
    assert "attributes={+message.type=FIFO}" in made
    pair.same("updateTopic", "-b", "BROKER", "-t", "Attributed", "-a", "+no.such=1")
    # The set grows with every version.
    for text in pair.texts("updateTopic", "-b", "BROKER", "-t", "Attributed", "-a", "+message.type=NONSENSE"):
        assert "CODE: 1 DESC: value is not in set: [" in text


def test_stats_of_a_topic(pair: BrokerPair) -> None:
    """With messages of its own: until there are figures of an hour, the last minute stands for all."""
    for side in pair.sides:
        _count_messages(pair, side)
    # Counted every ten seconds, and reported by the group every five.
    counted = re.compile(rf"^Counted counters 0 N N {MESSAGES} {MESSAGES} *$", re.MULTILINE)
    wait_until(
        lambda: all(counted.search(_stats(pair, side)) for side in pair.sides),
        timeout_s=45,
        what="the messages in the statistics",
    )
    ours, theirs = (_stats(pair, side) for side in pair.sides)
    assert ours == theirs
    for side in pair.sides:
        pair.client.stop(f"counter-{side.name}")


def _count_messages(pair: BrokerPair, side: Side) -> None:
    """Send and consume."""
    counter = f"counter-{side.name}"
    pair.client.namesrv = side.namesrv.address
    wire.create_topic(side.broker.address, [side.namesrv.address], "Counted", 1)
    pair.client.send(side.writer, "queue", "Counted", MESSAGES, queue=0)
    pair.client.start_consumer(counter, "Counted", group="counters")
    assert len(pair.client.received(counter, MESSAGES)) == MESSAGES


def _stats(pair: BrokerPair, side: Side) -> str:
    return _RATES.sub("N", re.sub(r" +", " ", pair.run(side, "statsAll", "-t", "Counted").stdout))


# -- messages ------------------------------------------------------------------------------------------------


def _same_of_each(pair: BrokerPair, command: str, field: str, *arguments: str) -> str:
    """As pair.same(), for a field of a message that differs between the sides."""
    texts = []
    for side in pair.sides:
        result = pair.run(side, command, *arguments, "-i", side.sent[2][field])
        texts.append(_KEPT_BY_5.sub("", without_moments(masked(result, side.masks()))))
    ours, theirs = (_sorted_properties(text) for text in texts)
    assert ours == theirs
    return ours


def _sorted_properties(text: str) -> str:
    """The properties of messages in order: Apache prints them as its hash table has them."""
    return _PROPERTIES.sub(lambda found: f"{found[1]}{{{_in_order(found[2])}}}", text)


def _in_order(properties: str) -> str:
    return ", ".join(sorted(part for part in properties.split(", ") if part))


def test_a_message_is_shown_by_its_offset_id(pair: BrokerPair) -> None:
    topic = ("-t", TOPIC) if says_as_5(pair) else ()
    text = _same_of_each(pair, "queryMsgById", "offsetMsgId", *topic)
    for line in (
        f"Topic: {TOPIC}",
        "Tags: [TagA]",
        "Keys: [key-order-1-0]",
        "Queue ID: 1",
        "Queue Offset: 0",
    ):
        assert line in text.splitlines()


def test_a_message_is_shown_by_its_unique_id(pair: BrokerPair) -> None:
    text = _same_of_each(pair, "queryMsgByUniqueKey", "msgId", "-t", TOPIC)
    assert "Keys: [key-order-1-0]" in text
    if says_as_5(pair):
        _same_of_each(pair, "queryMsgById", "msgId", "-t", TOPIC)


def test_an_id_of_nothing_is_an_error(pair: BrokerPair) -> None:
    topic = ("-t", TOPIC) if says_as_5(pair) else ()
    texts = []
    for side in pair.sides:
        beyond = f"{side.sent[2]['offsetMsgId'][:-16]}00000FFFFFFFFFFF"
        result = pair.run(side, "queryMsgById", "-i", beyond, *topic)
        texts.append(without_moments(masked(result, side.masks())))
    assert texts[0] == texts[1]


def test_messages_are_found_by_key(pair: BrokerPair) -> None:
    wait_until(
        lambda: "no message" not in pair.texts("queryMsgByKey", "-t", TOPIC, "-k", "key-order-1-0")[0],
        timeout_s=10,
        what="the index",
    )
    text = pair.same("queryMsgByKey", "-t", TOPIC, "-k", "key-order-1-0")
    assert re.search(r"^ID 1 0\b", text, re.MULTILINE)
    assert "CODE: 208" in pair.same("queryMsgByKey", "-t", TOPIC, "-k", "no-such-key")


@pytest.mark.parametrize(
    "command",
    [
        ("printMsg", "-t", TOPIC),
        ("printMsg", "-t", TOPIC, "-s", "NoSuchTag"),
        ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "2", "-p", "true", "-d", "true"),
        ("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "1"),
        ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "1"),
        ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "100"),
    ],
    ids=lambda command: "-".join(command[:3:2]),
)
def test_messages_are_printed(pair: BrokerPair, command: tuple[str, ...]) -> None:
    ours, theirs = (_sorted_properties(_KEPT_BY_5.sub("", text)) for text in pair.texts(*command))
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())


def test_a_message_is_sent(pair: BrokerPair) -> None:
    pair.same("updateTopic", "-b", "BROKER", "-t", "Sent", "-r", "2", "-w", "2")
    _wait_route(pair, "Sent")
    chosen = ("-k", "k1", "-c", "TagZ", "-b", "broker-a", "-i", "1")
    text = pair.same("sendMessage", "-t", "Sent", "-p", "hello", *chosen)
    assert "broker-a 1 SEND_OK ID" in text
    ours, theirs = (
        re.sub(r"^broker-a \d", "broker-a N", text, flags=re.MULTILINE)
        for text in pair.texts("sendMessage", "-t", "Sent", "-p", "hello")
    )
    assert ours == theirs
    refused = ("sendMessage", "-t", "Sent", "-p", "hello", "-b", "broker-a", "-i", "9")
    ours, theirs = pair.texts(*refused)
    assert "request queueId[9] is illegal, TopicConfig [topicName=Sent, readQueueNums=2" in ours
    if says_as_5(pair):
        assert ours == theirs


# -- groups and their clients --------------------------------------------------------------------------------


def test_progress_of_a_group(pair: BrokerPair) -> None:
    """4.9.7 shows the retry topic too, for which it gave offset 0 to the consumer."""
    for arguments in (("-g", GROUP), ("-g", GROUP, "-s", "true")):
        ours, theirs = (_progress(text) for text in pair.texts("consumerProgress", *arguments))
        assert ours == theirs
        assert f"{TOPIC} broker-a 0 2 2 " in "\n".join(ours)
    pair.same("consumerProgress", "-g", "no-such-group")


def _progress(text: str) -> list[str]:
    return [_RATES.sub("N", line + "\n") for line in text.splitlines() if not line.startswith("%RETRY%")]


def test_progress_of_all_groups(pair: BrokerPair) -> None:
    ours, theirs = (
        [line for line in text.splitlines() if line.startswith((GROUP, "#"))]
        for text in pair.texts("consumerProgress")
    )
    assert ours == theirs
    assert any(line.startswith(f"{GROUP} 1 V") for line in ours)


def test_connections_of_consumers_and_producers(pair: BrokerPair) -> None:
    consumers = pair.same("consumerConnection", "-g", GROUP)
    assert f"{TOPIC} TagA || TagB" in consumers
    assert "MessageModel: CLUSTERING" in consumers
    assert "CODE: 17 " in pair.same("consumerConnection", "-g", "no-such-group")
    producers = pair.same("producerConnection", "-g", PRODUCER_GROUP, "-t", TOPIC)
    assert re.search(r"^0001 \S+@WRITER \S+ +JAVA +V\d_\d_\d$", producers, re.MULTILINE)
    pair.same("producerConnection", "-g", "no-such-group", "-t", TOPIC)


def test_status_of_consumers(pair: BrokerPair) -> None:
    """The broker asks the consumer itself."""
    text = pair.same("consumerStatus", "-g", GROUP)
    assert re.search(r"^1 \S+@READER\S* +V\d_\d_\d +MILLIS/", text, re.MULTILINE)
    assert "Rebalance OK" in text or "#ConsumerRunningInfoFile" in text


def test_status_of_one_consumer(pair: BrokerPair) -> None:
    """What the consumer says of itself, passed on by the broker."""
    for side in pair.sides:
        shown = pair.run(side, "consumerStatus", "-g", GROUP, "-i", _client_id(pair, side)).stdout
        for part in ("#Consumer Properties#", "#Consumer Subscription#", "#Consumer Offset#"):
            assert part in shown
        assert re.search(rf"^{TOPIC} +broker-a +3 +2 *$", shown, re.MULTILINE)


def test_a_message_is_given_to_a_consumer_once_more(pair: BrokerPair) -> None:
    """The broker hands the message to the consumer and tells what that made of it."""
    for side in pair.sides:
        received = len(pair.client.received(side.reader, 0))
        message = ("-t", TOPIC, "-i", side.sent[2]["msgId"])
        chosen = ("-g", GROUP, "-d", _client_id(pair, side))
        shown = pair.run(side, "queryMsgByUniqueKey", *message, *chosen).stdout
        assert "consumeResult=CR_SUCCESS" in shown
        assert len(pair.client.received(side.reader, 0)) == received + 1


def _client_id(pair: BrokerPair, side: Side) -> str:
    shown = pair.run(side, "consumerConnection", "-g", GROUP).stdout
    return next(line.split()[0] for line in shown.splitlines() if side.reader in line)


def test_a_group_is_created_and_deleted(pair: BrokerPair) -> None:
    made = pair.same("updateSubGroup", "-b", "BROKER", "-g", "made", "-r", "3", "-q", "2")
    assert made.startswith("create subscription group to BROKER success.\n")
    pair.same("updateSubGroup", "-c", "DefaultCluster", "-g", "made-too", "-s", "false")
    pair.same("deleteSubGroup", "-b", "BROKER", "-g", "made")
    deleted = pair.same("deleteSubGroup", "-c", "DefaultCluster", "-g", "made-too", "-r", "true")
    assert deleted.startswith(
        "delete subscription group [made-too] from broker [BROKER] in cluster [DefaultCluster] success.\n"
    )
    pair.same("deleteSubGroup", "-b", "BROKER", "-g", "no-such-group")


def test_offsets_of_a_group_are_cloned(pair: BrokerPair) -> None:
    pair.same("updateSubGroup", "-b", "BROKER", "-g", "cloned")
    text = pair.same("cloneGroupOffset", "-s", GROUP, "-d", "cloned", "-t", TOPIC)
    assert text.startswith(
        f"clone group offset success. srcGroup[{GROUP}], destGroup=[cloned], topic[{TOPIC}]"
    )


# -- resets: last, since they change what the group has consumed ---------------------------------------------


def test_offsets_of_a_group_are_reset_by_time(pair: BrokerPair) -> None:
    """The consumer, which runs, gets everything again."""
    reset = ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s")
    ours, theirs = pair.texts(*reset, "0")
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())
    for side in pair.sides:
        assert _OFFSETS.findall(re.sub(" +", " ", ours)) != []
        again = partial(_is_received_again, pair.client, side)
        wait_until(again, timeout_s=90, what=f"every message again at {side.broker.name}")


def _is_received_again(client: Messaging, side: Side) -> bool:
    return _times_received(client, side) >= 2


def _times_received(client: Messaging, side: Side) -> int:
    """How often the consumer has got that message which it got least often."""
    received = bodies(client.received(side.reader, 0))
    return min(received.count(name) for name in bodies(side.sent))


def test_a_reset_of_an_unknown_group_is_refused(pair: BrokerPair) -> None:
    """4.9.7 says it in other words, with CODE 1."""
    command = ("resetOffsetByTime", "-g", "never-heard-of", "-t", TOPIC, "-s", "0")
    if says_as_5(pair):
        pair.same(*command)
    if not is_old_baseline(pair):
        assert "CODE: 26 " in pair.texts(*command)[0]
