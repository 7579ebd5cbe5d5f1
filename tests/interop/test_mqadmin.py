"""Our mqadmin beside Apache's, of both versions: at our broker and at Apache's both print the same.

For what reads, both look at the same broker at the same time. For what changes, each works on names of its
own, as long as the other's, which are masked.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import pytest

from kourou.cli.admin.run import FORMAT_VARIABLE
from tests.interop.kit import apache
from tests.interop.kit.broker_pair import (
    CLIENT_OF,
    GROUP,
    PRODUCER_GROUP,
    TOPIC,
    BrokerPair,
    Side,
    running_pair,
)
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.kourou_namesrv import IS_BASELINE
from tests.interop.kit.messaging_session import Messaging
from tests.interop.kit.mqadmin_output import allocation, configuration, route, without_moments
from tests.unit.admin.command_line import Result, run_now

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(IS_BASELINE, reason="our mqadmin is looked at, not our broker"),
]

_PROPERTIES: Final = re.compile(r"(roperties[:=] ?)\{(.*?)\}")
# Rates, and how far timers are behind.
_RATE: Final = re.compile(r"\d+\.\d+|\d+-\d+(?=\()")
_LONG_TIME: Final = re.compile(r"\b20\d{15}\b")
_CONNECTION_TIME: Final = re.compile(r"lastUpdateTimestamp=\d+")
_SENT: Final = re.compile(r"(?<=queueOffset=)\d+|(?<=queueId=)\d+|(?<=sgId=)\w+")
_MILLISECONDS: Final = re.compile(r"(rt=|RT: |spentTimeMills=)[\d.]+(ms)?")
_LOOKS: Final = 3
Prepared = Callable[[str], object]


@pytest.fixture(scope="module", params=apache.VERSIONS)
def pair(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    admins: dict[str, AdminSession],
    java_messaging_clients: dict[str, Messaging],
) -> Iterator[BrokerPair]:
    version = request.param
    client = java_messaging_clients[CLIENT_OF[version]]
    work_dir = tmp_path_factory.mktemp(f"mqadmin-{version}")
    with running_pair(version, work_dir, admins[version], client) as running:
        yield running


@pytest.fixture(params=["ours", "theirs"])
def side(request: pytest.FixtureRequest, pair: BrokerPair) -> Side:
    """The broker that is looked at."""
    return pair.ours if request.param == "ours" else pair.theirs


def run_ours(pair: BrokerPair, side: Side, command: str, *arguments: str) -> Result:
    """Our mqadmin, in the form of the version of Apache's."""
    words = [side.broker.address if word == "BROKER" else word for word in arguments]
    with mock.patch.dict(os.environ, {FORMAT_VARIABLE: pair.version}):
        return run_now([command, "-n", side.namesrv.address, *words])


def both(pair: BrokerPair, side: Side, *words: str) -> tuple[str, str]:
    """What ours and Apache's print, times masked."""
    ours = run_ours(pair, side, *words)
    assert (ours.exit_code, ours.stderr) == (0, "")
    theirs = pair.run(side, *words)
    return without_moments(ours.stdout), without_moments(theirs.stdout)


def as_it_is(text: str) -> object:
    return lines(text)


def in_any_order(text: str) -> object:
    return sorted(lines(text))


def lines(text: str) -> list[str]:
    """The lines, the properties of messages sorted: Apache has them in the order of a hash table."""
    return [_PROPERTIES.sub(_sorted_properties, line) for line in text.splitlines()]


def _sorted_properties(found: re.Match[str]) -> str:
    return f"{found[1]}{{{', '.join(sorted(found[2].split(', ')))}}}"


def shares(text: str) -> object:
    """How many queues each address gets: Apache shares them out in the order of a hash table."""
    return sorted((address, len(queues)) for address, queues in allocation(text).items())


def without_rates(text: str) -> object:
    return _RATE.sub("N", text).splitlines()


def names_of_figures(text: str) -> object:
    return [line.partition(":")[0].strip() for line in text.splitlines()]


def clients(text: str) -> object:
    return sorted(_CONNECTION_TIME.sub("", text).splitlines())


_READS: Final[tuple[tuple[tuple[str, ...], Prepared], ...]] = (
    (("clusterList",), without_rates),
    (("clusterList", "-m"), as_it_is),
    (("topicList",), in_any_order),
    (("topicList", "-c"), in_any_order),
    (("topicRoute", "-t", TOPIC), route),
    (("topicRoute", "-l", "-t", TOPIC), as_it_is),
    # Apache's forgets the rate that its brokers tell.
    (("topicStatus", "-t", TOPIC), without_rates),
    (("topicClusterList", "-t", TOPIC), as_it_is),
    (("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2,10.0.0.3"), shares),
    (("statsAll", "-t", TOPIC), without_rates),
    (("brokerStatus", "-b", "BROKER"), names_of_figures),
    (("brokerConsumeStats", "-b", "BROKER"), in_any_order),
    (("getBrokerConfig", "-b", "BROKER"), configuration),
    (("getNamesrvConfig",), configuration),
    (("consumerProgress", "-g", GROUP), without_rates),
    (("consumerProgress", "-g", GROUP, "-s", "true"), without_rates),
    (("consumerProgress",), in_any_order),
    (("consumerConnection", "-g", GROUP), in_any_order),
    (("producerConnection", "-g", PRODUCER_GROUP, "-t", TOPIC), as_it_is),
    (("producer", "-b", "BROKER"), clients),
    (("getConsumerConfig", "-g", GROUP), in_any_order),
    (("printMsg", "-t", TOPIC, "-d", "true"), in_any_order),
    (("printMsg", "-t", TOPIC, "-s", "TagA", "-d", "false"), in_any_order),
    (("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true"), as_it_is),
    (("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "1", "-f", "true"), as_it_is),
    (("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "0", "-c", "2"), as_it_is),
    (("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "1"), as_it_is),
    (("statsAll", "-a"), without_rates),
    (("brokerStatus", "-c", "DefaultCluster"), names_of_figures),
    (("getBrokerConfig", "-c", "DefaultCluster"), configuration),
    (("brokerConsumeStats", "-b", "BROKER", "-l", "1"), in_any_order),
    (("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-c", "2"), as_it_is),
    (("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "2", "-b", "BROKER"), as_it_is),
)


@pytest.mark.parametrize(("words", "prepared"), _READS, ids=[" ".join(words) for words, _ in _READS])
def test_what_reads_prints_the_same(
    pair: BrokerPair, side: Side, words: tuple[str, ...], prepared: Prepared
) -> None:
    assert_same(pair, side, words, prepared)


def assert_same(pair: BrokerPair, side: Side, words: tuple[str, ...], prepared: Prepared) -> None:
    """Both print the same at the same time: clients are at work, and what is there may change between two
    looks, though not between each two."""
    for _ in range(_LOOKS):
        ours, theirs = both(pair, side, *words)
        if prepared(ours) == prepared(theirs):
            break
    assert prepared(ours) == prepared(theirs)
    assert ours.strip()


def test_messages_are_found_by_key_and_by_both_ids(pair: BrokerPair, side: Side) -> None:
    sent = side.sent[0]
    for words in (
        ("queryMsgByKey", "-t", TOPIC, "-k", sent["keys"].split()[0]),
        ("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent["msgId"]),
        ("queryMsgById", *(() if pair.version.startswith("4") else ("-t", TOPIC)), "-i", sent["offsetMsgId"]),
    ):
        ours, theirs = both(pair, side, *words)
        assert lines(ours) == lines(theirs)
        assert ours.strip()


def test_a_consumer_reports_the_same_state(pair: BrokerPair, side: Side) -> None:
    connection = run_ours(pair, side, "consumerConnection", "-g", GROUP, "--json").json
    client_id = connection["connectionSet"][0]["clientId"]
    assert_same(pair, side, ("consumerStatus", "-g", GROUP, "-i", client_id), _shown_status)


def _shown_status(text: str) -> list[str]:
    text = _RATE.sub("N", _LONG_TIME.sub("TIME", text))
    return sorted(line for line in lines(text) if "TIMESTAMP" not in line)


# -- changes -------------------------------------------------------------------------------------------------


def test_a_topic_from_its_creation_to_its_end(pair: BrokerPair, side: Side) -> None:
    for words in (
        ("updateTopic", "-b", "BROKER", "-t", "NAME", "-r", "3", "-w", "2"),
        ("updateTopic", "-c", "DefaultCluster", "-t", "NAME", "-o", "true"),
        ("updateTopicPerm", "-b", "BROKER", "-t", "NAME", "-p", "4"),
        ("updateTopicPerm", "-c", "DefaultCluster", "-t", "NAME", "-p", "6"),
        ("updateOrderConf", "-t", "NAME", "-m", "put", "-v", "broker-a:4"),
        ("updateOrderConf", "-t", "NAME", "-m", "get"),
        ("updateOrderConf", "-t", "NAME", "-m", "delete"),
        ("topicRoute", "-l", "-t", "NAME"),
        ("deleteTopic", "-c", "DefaultCluster", "-t", "NAME"),
    ):
        same_change(pair, side, *words)


def test_a_group_from_its_creation_to_its_end(pair: BrokerPair, side: Side) -> None:
    for words in (
        ("updateSubGroup", "-b", "BROKER", "-g", "NAME", "-r", "5", "-d", "true"),
        ("updateSubGroup", "-c", "DefaultCluster", "-g", "NAME"),
        ("getConsumerConfig", "-g", "NAME"),
        ("deleteSubGroup", "-b", "BROKER", "-g", "NAME"),
    ):
        same_change(pair, side, *words)


def test_what_goes_to_brokers_and_name_servers(pair: BrokerPair, side: Side) -> None:
    for words in (
        ("updateKvConfig", "-s", "space", "-k", "NAME", "-v", "a value"),
        ("deleteKvConfig", "-s", "space", "-k", "NAME"),
        ("updateBrokerConfig", "-b", "BROKER", "-k", "fileReservedTime", "-v", "48"),
        ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false"),
        ("wipeWritePerm", "-b", "broker-a"),
        ("addWritePerm", "-b", "broker-a"),
        ("cleanExpiredCQ", "-b", "BROKER"),
        ("cleanUnusedTopic", "-b", "BROKER"),
        ("cleanExpiredCQ", "-c", "DefaultCluster"),
    ):
        same_change(pair, side, *words)


def test_offsets_are_moved(pair: BrokerPair, side: Side) -> None:
    """Java's consumer is busy with that for 10 s, and does not respond meanwhile."""
    for words in (
        ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "1000000000000"),
        ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "now"),
        ("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC),
        ("updateSubGroup", "-b", "BROKER", "-g", "NAME"),
        ("cloneGroupOffset", "-s", GROUP, "-d", "NAME", "-t", TOPIC),
    ):
        same_change(pair, side, *words, is_sorted=True)


def test_exported_files_are_the_same(pair: BrokerPair, side: Side, tmp_path: Path) -> None:
    for command, file_name in (("exportMetadata", "metadata.json"), ("exportConfigs", "configs.json")):
        exported = []
        for name, run in (("ours", run_ours), ("them", BrokerPair.run)):
            folder = tmp_path / name
            ran = run(pair, side, command, "-c", "DefaultCluster", "-f", str(folder))
            assert ran.stdout.strip() == f"export {folder}/{file_name} success"
            exported.append(json.loads((folder / file_name).read_text("utf-8")))
        for file in exported:
            file.pop("exportTime", None)
        assert exported[0] == exported[1]


def test_metrics_have_the_same_shape(pair: BrokerPair, side: Side, tmp_path: Path) -> None:
    shapes = []
    for name, run in (("ours", run_ours), ("them", BrokerPair.run)):
        ran = run(pair, side, "exportMetrics", "-c", "DefaultCluster", "-f", str(tmp_path / name))
        assert ran.stdout.strip() == f"export {tmp_path / name}/metrics.json success"
        shapes.append(_shape(json.loads((tmp_path / name / "metrics.json").read_text("utf-8"))))
    assert shapes[0] == shapes[1]


def _shape(value: object) -> object:
    """The keys of a document, without what they hold."""
    return {key: _shape(held) for key, held in value.items()} if isinstance(value, dict) else None


def test_lists_of_topics_and_groups_are_taken(pair: BrokerPair, side: Side, tmp_path: Path) -> None:
    """With -c Apache's prints its usage after it has succeeded."""
    if pair.version.startswith("4"):
        pytest.skip("mqadmin of 4.9.7 has no lists")
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text('[{"topicName": "listed", "readQueueNums": 2, "writeQueueNums": 2}]')
    groups.write_text('[{"groupName": "listed"}]')
    for words in (
        ("updateTopicList", "-b", "BROKER", "-f", str(topics)),
        ("updateSubGroupList", "-b", "BROKER", "-f", str(groups)),
    ):
        same_change(pair, side, *words)


def test_a_broker_can_be_tried(pair: BrokerPair, side: Side) -> None:
    ours, theirs = both(pair, side, "sendMsgStatus", "-b", "broker-a", "-c", "2", "-s", "64")
    masked = [_SENT.sub("N", _MILLISECONDS.sub("RT", text)).splitlines() for text in (ours, theirs)]
    assert masked[0] == masked[1]


def test_a_topic_can_be_tried(pair: BrokerPair, side: Side) -> None:
    """Rows alternate in the same way; how long a send took is its own."""
    same_change(pair, side, "updateTopic", "-b", "BROKER", "-t", "NAME", "-r", "2", "-w", "2")
    tables = []
    for name, run in (("by-ours", run_ours), ("by-them", BrokerPair.run)):
        table = without_moments(run(pair, side, "checkMsgSendRT", "-t", name, "-a", "4").stdout)
        rows = [line.split() for line in table.splitlines()]
        tables.append([rows[0], sorted(row[:3] for row in rows[1:-1]), rows[-1][:2]])
    assert tables[0] == tables[1]


def test_what_sends(pair: BrokerPair, side: Side) -> None:
    same_change(pair, side, "updateTopic", "-b", "BROKER", "-t", "NAME", "-r", "1", "-w", "1")
    for words in (
        ("sendMessage", "-t", "NAME", "-p", "hello", "-k", "key", "-c", "TagA"),
        ("sendMessage", "-t", "NAME", "-p", "hello", "-b", "broker-a", "-i", "0"),
    ):
        same_change(pair, side, *words)


def same_change(pair: BrokerPair, side: Side, command: str, *arguments: str, is_sorted: bool = False) -> None:
    """Assert that both print the same, each with a name of its own in the place of NAME."""
    texts = []
    for name, run in (("by-ours", run_ours), ("by-them", BrokerPair.run)):
        words = [name if word == "NAME" else word for word in arguments]
        ran = run(pair, side, command, *words)
        text = without_moments(ran.stdout.replace(name, "NAME")).splitlines()
        texts.append(sorted(text) if is_sorted else text)
    assert texts[0] == texts[1]
    assert texts[0]


# -- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("topicRoute", "-t", "nowhere"),
        ("topicStatus", "-t", "nowhere"),
        ("consumerProgress", "-g", "nobody"),
        ("consumerConnection", "-g", "nobody"),
        ("producerConnection", "-g", "nobody", "-t", TOPIC),
        ("queryMsgByKey", "-t", TOPIC, "-k", "no-such-key"),
        ("queryMsgByOffset", "-t", "nowhere", "-b", "broker-a", "-i", "0", "-o", "0"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_has_the_code_of_apache_in_one_line(
    pair: BrokerPair, side: Side, words: tuple[str, ...]
) -> None:
    ours = run_ours(pair, side, *words)
    (line,) = ours.stderr.splitlines()
    assert ours.exit_code == 1
    theirs = pair.run(side, *words).stderr
    codes = re.findall(r"CODE: (\d+)", theirs)
    assert not codes or re.findall(r"CODE: (\d+)", line) == codes[:1]
