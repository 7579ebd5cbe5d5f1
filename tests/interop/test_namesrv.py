"""Apache's brokers, Java client and mqadmin at our name server, beside Apache's own name server.

The same brokers are registered at both, so every mqadmin command must print the same with either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.interop.kit import apache
from tests.interop.kit.cluster import BROKER_NAMES, Cluster, create_topic, running_cluster, wait_route
from tests.interop.kit.java_session import CLIENT_SETS, AdminResult, AdminSession, ClientSession
from tests.interop.kit.kourou_namesrv import IS_BASELINE
from tests.interop.kit.mqadmin_output import (
    allocation,
    configuration,
    masked,
    permissions,
    route,
    sorted_lines,
    without_figures,
)
from tests.interop.kit.process import ServerProcess

pytestmark = pytest.mark.interop

_SHARED_TOPIC: Final = "SharedTopic"
_ALLOCATE: Final = ("allocateMQ", "-t", _SHARED_TOPIC, "-i", "10.0.0.1,10.0.0.2")
# Where a server lives and listens: different for any two of them.
_LOCAL_KEYS: Final = {"listenPort", "rocketmqHome", "kvConfigPath", "configStorePath"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Our name server beside Apache's of one version, and the mqadmin of that version."""

    version: str
    admin: AdminSession
    ours: ServerProcess
    theirs: ServerProcess

    def run_both(self, command: str, *arguments: str) -> tuple[AdminResult, AdminResult]:
        """The command at our name server, then at theirs."""
        ours = self.admin.run(command, "-n", self.ours.address, *arguments)
        return ours, self.admin.run(command, "-n", self.theirs.address, *arguments)

    def masked_both(self, command: str, *arguments: str) -> tuple[str, str]:
        """As run_both, with the addresses of the two servers masked."""
        ours, theirs = self.run_both(command, *arguments)
        return masked(ours, {self.ours.address: "NAMESRV"}), masked(theirs, {self.theirs.address: "NAMESRV"})

    def same(self, command: str, *arguments: str) -> str:
        """Assert that both servers give the same output, and return it."""
        ours, theirs = self.masked_both(command, *arguments)
        assert ours == theirs
        return ours

    def same_route(self, topic: str) -> AdminResult:
        """Assert that both servers give the same route, and return ours."""
        ours, theirs = self.run_both("topicRoute", "-t", topic)
        assert route(ours.stdout) == route(theirs.stdout)
        return ours


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, admins: dict[str, AdminSession]) -> Iterator[Cluster]:
    work_dir = tmp_path_factory.mktemp("namesrv")
    with running_cluster(work_dir, admins["4.9.7"], beside_apache=True) as running:
        create_topic(running, admins["5.5.0"], _SHARED_TOPIC, *running.brokers)
        yield running


@pytest.fixture(params=apache.VERSIONS)
def pair(request: pytest.FixtureRequest, cluster: Cluster, admins: dict[str, AdminSession]) -> Pair:
    version = request.param
    return Pair(version, admins[version], cluster.ours[version], cluster.theirs[version])


@pytest.fixture
def newest(cluster: Cluster, admins: dict[str, AdminSession]) -> Pair:
    return Pair("5.5.0", admins["5.5.0"], cluster.ours["5.5.0"], cluster.theirs["5.5.0"])


# --- the Java client by our routes ---


@pytest.mark.parametrize("client_version", CLIENT_SETS)
@pytest.mark.parametrize("broker_version", BROKER_NAMES)
def test_java_client_sends_and_receives_through_a_broker_by_our_route(
    cluster: Cluster,
    admins: dict[str, AdminSession],
    clients: dict[str, ClientSession],
    client_version: str,
    broker_version: str,
) -> None:
    topic = f"Topic-client-{client_version}-broker-{broker_version}".replace(".", "_")
    broker_name = BROKER_NAMES[broker_version]
    create_topic(cluster, admins["5.5.0"], topic, broker_name)
    ours = cluster.ours[broker_version].address
    run = clients[client_version].exchange([ours], topic, f"group-{topic}", 40)
    assert (run.failure, run.send_errors, len(run.sent)) == (None, [], 40)
    assert set(run.received) == set(run.sent)
    assert run.brokers == {broker_name}


@pytest.mark.parametrize("client_version", CLIENT_SETS)
def test_java_client_creates_a_topic_on_all_brokers_by_sending_to_it(
    cluster: Cluster,
    admins: dict[str, AdminSession],
    clients: dict[str, ClientSession],
    client_version: str,
) -> None:
    """The client takes the route of TBW102 for a topic that has none; the brokers then create the topic."""
    topic = f"NewTopic-{client_version}".replace(".", "_")
    ours = cluster.ours["5.5.0"]
    first = clients[client_version].send([ours.address], topic, 16)
    assert first.brokers == set(cluster.brokers)
    wait_route(ours, admins["5.5.0"], topic, cluster.brokers)
    run = clients[client_version].exchange([ours.address], topic, f"group-{topic}", 16)
    assert (run.failure, run.send_errors, run.lost) == (None, [], set())
    assert set(first.sent) <= set(run.received)


# --- mqadmin at ours and at Apache's ---


def test_cluster_list_is_the_same(pair: Pair, cluster: Cluster) -> None:
    ours, theirs = pair.masked_both("clusterList")
    assert without_figures(ours) == without_figures(theirs)
    for broker in cluster.brokers.values():
        assert broker.address in ours
    assert "V4_9_7" in ours
    assert "V5_5_0" in ours


def test_cluster_list_with_more_statistics_is_the_same(pair: Pair) -> None:
    ours, theirs = pair.masked_both("clusterList", "-m")
    totals = re.compile(r" +\d+")
    assert totals.sub(" N", ours) == totals.sub(" N", theirs)
    assert "broker-a N N N N" in totals.sub(" N", ours)


def test_topic_list_is_the_same(pair: Pair) -> None:
    ours, theirs = pair.masked_both("topicList")
    assert sorted_lines(ours) == sorted_lines(theirs)
    assert {_SHARED_TOPIC, "TBW102", "DefaultCluster", "broker-a"} <= set(sorted_lines(ours))


def test_topic_list_by_cluster_is_the_same(pair: Pair) -> None:
    ours, theirs = pair.masked_both("topicList", "-c")
    assert sorted_lines(ours) == sorted_lines(theirs)
    assert re.search(rf"^DefaultCluster +{_SHARED_TOPIC} ", ours, re.MULTILINE)


def test_topic_route_is_the_same(pair: Pair, cluster: Cluster) -> None:
    for topic in (_SHARED_TOPIC, "TBW102", "broker-a", "DefaultCluster"):
        pair.same_route(topic)
    assert permissions(pair.same_route(_SHARED_TOPIC).stdout) == {name: 6 for name in cluster.brokers}


def test_topic_route_as_a_list_is_the_same(pair: Pair) -> None:
    ours, theirs = pair.masked_both("topicRoute", "-l", "-t", _SHARED_TOPIC)
    assert sorted_lines(ours) == sorted_lines(theirs)
    assert re.search(r"^Total: +2 +8 +8 *$", ours, re.MULTILINE)


def test_topic_route_of_a_missing_topic_is_the_same_error(pair: Pair) -> None:
    text = pair.same("topicRoute", "-t", "NoSuchTopic")
    assert "CODE: 17  DESC: No topic route info in name server for the topic: NoSuchTopic" in text


def test_clusters_of_a_topic_are_the_same(pair: Pair) -> None:
    assert pair.same("topicClusterList", "-t", _SHARED_TOPIC).startswith("DefaultCluster\n")


def test_queue_allocation_covers_the_same_queues(pair: Pair) -> None:
    """Who gets which queue hangs on the order of brokers in the route: a hash table's at Apache."""
    ours, theirs = (allocation(result.stdout) for result in pair.run_both(*_ALLOCATE))
    assert ours.keys() == theirs.keys() == {"10.0.0.1", "10.0.0.2"}
    assert [len(queues) for queues in ours.values()] == [len(queues) for queues in theirs.values()] == [4, 4]
    assert set.union(*ours.values()) == set.union(*theirs.values())


def test_kv_config_is_kept_and_deleted_as_in_apache(pair: Pair) -> None:
    for key, value in (("a key", "some value"), ("ключ", "值"), ("a key", "another value")):
        text = pair.same("updateKvConfig", "-s", "interop", "-k", key, "-v", value)
        assert text.startswith("create or update kv config to namespace success.\n")
    assert stored_kv(pair.ours) == stored_kv(pair.theirs)
    assert stored_kv(pair.ours)["interop"] == {"a key": "another value", "ключ": "值"}
    for key in ("a key", "ключ"):
        assert pair.same("deleteKvConfig", "-s", "interop", "-k", key).startswith("delete kv config from")
    assert stored_kv(pair.ours) == stored_kv(pair.theirs)


def test_deleting_a_missing_kv_config_is_the_same(pair: Pair) -> None:
    pair.same("deleteKvConfig", "-s", "no such namespace", "-k", "no such key")
    pair.same("updateKvConfig", "-s", "interop", "-k", "present", "-v", "1")
    pair.same("deleteKvConfig", "-s", "interop", "-k", "no such key")
    assert stored_kv(pair.ours) == stored_kv(pair.theirs)


def stored_kv(namesrv: ServerProcess) -> dict[str, dict[str, str]]:
    """The KV file of a name server, which is written before it answers."""
    stored = json.loads((namesrv.log_path.parent / "namesrv" / "kvConfig.json").read_text())
    table: dict[str, dict[str, str]] = stored["configTable"]
    return table


def test_write_permission_of_an_unknown_broker_is_the_same(pair: Pair) -> None:
    expected = "write perm of broker[no-such-broker] in name server[NAMESRV] OK, 0\n"
    assert pair.same("wipeWritePerm", "-b", "no-such-broker").startswith(f"wipe {expected}")
    assert pair.same("addWritePerm", "-b", "no-such-broker").startswith(f"add {expected}")


@pytest.mark.parametrize("broker_name", BROKER_NAMES.values())
def test_write_permission_of_a_broker_is_wiped_and_added_as_in_apache(pair: Pair, broker_name: str) -> None:
    text = pair.same("wipeWritePerm", "-b", broker_name)
    assert re.match(
        rf"wipe write perm of broker\[{broker_name}\] in name server\[NAMESRV\] OK, [1-9]\d*\n", text
    )
    other = next(name for name in BROKER_NAMES.values() if name != broker_name)
    assert permissions(pair.same_route(_SHARED_TOPIC).stdout) == {broker_name: 4, other: 6}
    # TBW102 is inherited from (7 = read, write, inherit): 5 when wiped, and 6 when write permission is added.
    pair.same_route("TBW102")
    pair.same("wipeWritePerm", "-b", broker_name)
    assert pair.same("addWritePerm", "-b", broker_name).startswith("add write perm")
    assert permissions(pair.same_route(_SHARED_TOPIC).stdout) == {broker_name: 6, other: 6}
    pair.same_route("TBW102")


@pytest.mark.parametrize("client_version", CLIENT_SETS)
def test_java_producer_follows_the_write_permission(
    pair: Pair,
    cluster: Cluster,
    admins: dict[str, AdminSession],
    clients: dict[str, ClientSession],
    client_version: str,
) -> None:
    """Wiped: messages go to the other broker; a topic without another broker has no queue to write to."""
    topic = f"WipedTopic-{client_version}-{pair.version}".replace(".", "_")
    create_topic(cluster, admins["5.5.0"], topic, "broker-a")
    client, ours = clients[client_version], [pair.ours.address]
    pair.admin.run("wipeWritePerm", "-n", pair.ours.address, "-b", "broker-a")
    refused = client.send(ours, topic, 1)
    assert refused.sent == []
    assert "No route info of this topic" in refused.send_errors[0]
    assert client.send(ours, _SHARED_TOPIC, 8).brokers == {"broker-b"}
    pair.admin.run("addWritePerm", "-n", pair.ours.address, "-b", "broker-a")
    assert len(client.send(ours, topic, 4).sent) == 4
    assert client.send(ours, _SHARED_TOPIC, 16).brokers == {"broker-a", "broker-b"}


def test_configuration_has_apaches_keys_and_defaults(pair: Pair) -> None:
    ours, theirs = (configuration(result.stdout) for result in pair.run_both("getNamesrvConfig"))
    expected = {key: value for key, value in theirs.items() if key not in _LOCAL_KEYS}
    assert {key: ours.get(key) for key in expected} == expected
    assert ours.keys() >= _LOCAL_KEYS
    assert ours["listenPort"] == str(pair.ours.port)


def test_configuration_has_no_other_keys_than_5_5_0(newest: Pair) -> None:
    ours, theirs = (configuration(result.stdout) for result in newest.run_both("getNamesrvConfig"))
    assert ours.keys() == theirs.keys()


def test_configuration_is_updated_as_in_apache(pair: Pair) -> None:
    text = pair.same("updateNamesrvConfig", "-k", "productEnvName", "-v", "interop")
    assert text.startswith("update name server config success![NAMESRV]\nproductEnvName : interop\n")
    assert shown_by_both(pair, "productEnvName") == {"interop"}
    assert all("productEnvName=interop" in stored_conf(server) for server in (pair.ours, pair.theirs))


@pytest.mark.skipif(IS_BASELINE, reason="ours differs from Apache's on purpose")
def test_an_unknown_key_is_refused_and_ours_says_so(pair: Pair) -> None:
    """Apache answers success and changes nothing."""
    ours, theirs = pair.run_both("updateNamesrvConfig", "-k", "noSuchKey", "-v", "1")
    assert "update name server config success!" in theirs.stdout
    assert "unknown key noSuchKey" in ours.stderr


@pytest.mark.skipif(IS_BASELINE, reason="ours differs from Apache's on purpose")
@pytest.mark.parametrize(
    ("key", "value"), [("serverWorkerThreads", "many"), ("orderMessageEnable", "perhaps")]
)
def test_a_bad_value_changes_nothing_and_ours_says_why(pair: Pair, key: str, value: str) -> None:
    """Apache answers success and goes on with the old value."""
    before = shown_by_both(pair, key)
    ours, theirs = pair.run_both("updateNamesrvConfig", "-k", key, "-v", value)
    assert "update name server config success!" in theirs.stdout
    assert re.search(rf"CODE: 1  DESC: .*{key}={value}: must be ", ours.stderr)
    assert shown_by_both(pair, key) == before


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath"])
def test_keys_that_would_let_a_stranger_write_files_are_refused(pair: Pair, key: str) -> None:
    """5.5.0 says "in black list." where 4.9.7 says "path"; ours says what 5.5.0 says."""
    for result in pair.run_both("updateNamesrvConfig", "-k", key, "-v", "elsewhere"):
        assert "CODE: 16  DESC: Can not update config " in result.stderr
    assert "elsewhere" not in shown_by_both(pair, key)


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "configBlackList"])
def test_the_black_list_is_that_of_5_5_0(newest: Pair, key: str) -> None:
    assert "CODE: 16" in newest.same("updateNamesrvConfig", "-k", key, "-v", "elsewhere")


def shown_by_both(pair: Pair, key: str) -> set[str | None]:
    """The values that getNamesrvConfig shows for a key; one if both servers agree."""
    return {configuration(result.stdout).get(key) for result in pair.run_both("getNamesrvConfig")}


def stored_conf(namesrv: ServerProcess) -> str:
    """The configuration file of a name server, to which it writes what is updated."""
    return Path(namesrv.log_path.parent / "namesrv.conf").read_text()


def test_order_configuration_is_put_got_and_deleted_as_in_apache(pair: Pair) -> None:
    order = ("updateOrderConf", "-t", "OrderTopic", "-m")
    missing = pair.same(*order, "get")
    assert "CODE: 22  DESC: No config item, Namespace: ORDER_TOPIC_CONFIG Key: OrderTopic" in missing
    for value in ("broker-a:4", "broker-a:4;broker-b:8"):
        text = pair.same(*order, "put", "-v", value)
        assert text.startswith(f"update orderConf success. topic=[OrderTopic], orderConf=[{value}]")
        assert f"orderConf=[{value}] " in pair.same(*order, "get")
    assert pair.same(*order, "delete").startswith("delete orderConf success. topic=[OrderTopic]")
    assert pair.same(*order, "get") == missing
    pair.same(*order, "delete")


def test_order_configuration_is_in_the_route_once_order_messages_are_enabled(pair: Pair) -> None:
    value = "broker-a:4;broker-b:4"
    pair.same("updateOrderConf", "-t", _SHARED_TOPIC, "-m", "put", "-v", value)
    assert "orderTopicConf" not in pair.same_route(_SHARED_TOPIC).stdout
    pair.same("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert route(pair.same_route(_SHARED_TOPIC).stdout)["orderTopicConf"] == value
    pair.same("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    pair.same("updateOrderConf", "-t", _SHARED_TOPIC, "-m", "delete")
    pair.same_route(_SHARED_TOPIC)


def test_a_deleted_topic_leaves_the_routes(
    pair: Pair, cluster: Cluster, admins: dict[str, AdminSession]
) -> None:
    topic = f"DeletedTopic-{pair.version}".replace(".", "_")
    create_topic(cluster, admins["5.5.0"], topic, *cluster.brokers)
    deleted = pair.same("deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert f"delete topic [{topic}] from NameServer success." in deleted
    assert "CODE: 17" in pair.same("topicRoute", "-t", topic)
