"""What standalone's options mean for ports, stores and configurations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kourou.cli.proxy import check_installed
from kourou.config import BrokerConfig
from kourou.errors import ConfigError
from kourou.protocol.signature import SigningKeys
from kourou.standalone.accounts import StandaloneAccounts
from kourou.standalone.grpc import check_grpc, proxy_settings
from kourou.standalone.options import Replica, StandaloneOptions, broker_config, namesrv_config
from kourou.standalone.supervisor import RestartPauses

FIRST = Replica(0)


def options(store: Path, **more: Any) -> StandaloneOptions:
    return StandaloneOptions(store=store, **more)


def test_brokers_have_names_stores_and_ports_ten_apart(tmp_path: Path) -> None:
    three = options(tmp_path, brokers=3)
    three.check()
    configs = [broker_config(three, replica, "127.0.0.1:9876")[0] for replica in three.replicas]
    assert [config.broker_name for config in configs] == ["broker-a", "broker-b", "broker-c"]
    assert [config.listen_port for config in configs] == [10911, 10921, 10931]
    assert [config.store_path_root_dir for config in configs] == [
        str(tmp_path / name) for name in ("broker-a", "broker-b", "broker-c")
    ]
    assert {config.namesrv_addr for config in configs} == {"127.0.0.1:9876"}


def test_it_listens_on_loopback_and_advertises_that(tmp_path: Path) -> None:
    config, notes = broker_config(options(tmp_path), FIRST, "127.0.0.1:9876")
    assert (config.bind_address, config.broker_ip1, notes) == ("127.0.0.1", "127.0.0.1", [])
    namesrv, notes = namesrv_config(options(tmp_path))
    assert (namesrv.bind_address, namesrv.listen_port, notes) == ("127.0.0.1", 9876, [])
    assert namesrv.kv_config_path == str(tmp_path / "namesrv" / "kvConfig.json")


def test_on_every_address_its_own_brokers_use_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.config.host.local_address", lambda: "10.1.2.3")
    everywhere = options(tmp_path, host="0.0.0.0")
    assert everywhere.advertised == "10.1.2.3"
    assert everywhere.namesrv_address(9876) == "127.0.0.1:9876"
    assert options(tmp_path, host="0.0.0.0", advertise="mq.example.com").advertised == "mq.example.com"
    assert options(tmp_path, host="::1").namesrv_address(1) == "[::1]:1"


def test_port_zero_is_free_for_all(tmp_path: Path) -> None:
    free = options(tmp_path, broker_port=0, brokers=2)
    assert [free.port_of(replica) for replica in free.replicas] == [0, 0]


def test_no_two_brokers_share_a_port(tmp_path: Path) -> None:
    full = options(tmp_path, brokers=3, slaves=4)
    configs = [broker_config(full, replica, "127.0.0.1:9876")[0] for replica in full.replicas]
    ports = [
        port
        for config in configs
        for port in (config.listen_port, config.ha_listen_port, config.fast_listen_port)
        if port
    ]
    assert len(ports) == len(set(ports)) >= 2 * len(configs)


def test_all_problems_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        options(tmp_path, brokers=27, slaves=5, namesrv_port=-1, broker_port=70_000, http_port=65_536).check()
    assert caught.value.problems == (
        "--brokers 27: must be from 1 to 26",
        "--slaves 5: must be from 0 to 4, for each broker",
        "--namesrv-port -1: must be from 0 to 65535; 0 picks a free one",
        "--broker-port 70000: must be from 0 to 65535; 0 picks a free one",
        "--http-port 65536: must be from 0 to 65535; 0 picks a free one",
    )


def test_a_folder_that_is_a_store_is_served_as_it_is_by_one_broker(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert options(tmp_path).store_of(FIRST) == tmp_path
    with pytest.raises(ConfigError, match="is the store of one broker; leave --brokers"):
        options(tmp_path, brokers=2).check()
    with pytest.raises(ConfigError, match="is the store of one broker; leave --slaves"):
        options(tmp_path, slaves=1).check()


def test_stores_of_more_brokers_than_asked_for_are_found(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b", "broker-c"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    assert options(tmp_path, brokers=2).unserved_stores == [tmp_path / "broker-c"]


def test_keys_in_the_brokers_file_are_taken_up_and_options_win(tmp_path: Path) -> None:
    (tmp_path / "broker-a.properties").write_text("brokerName=x\nflushDiskType=SYNC_FLUSH\n")
    config, _ = broker_config(options(tmp_path), FIRST, "127.0.0.1:1")
    assert (config.broker_name, config.flush_disk_type) == ("broker-a", "SYNC_FLUSH")
    assert config.broker_config_path == str(tmp_path / "broker-a.properties")


def test_a_key_in_the_brokers_file_that_an_option_sets_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "broker-a.properties"
    path.write_text("flushDiskType=SYNC_FLUSH\nlistenPort=4\n")
    config, notes = broker_config(options(tmp_path), FIRST, "127.0.0.1:1")
    assert config.listen_port != 4
    assert notes == [f"{path}:2: listenPort=4 is not used: --broker-port sets it"]


def test_slaves_are_between_the_ports_of_their_master_and_the_next(tmp_path: Path) -> None:
    cluster = options(tmp_path, brokers=2, slaves=2, sync=True)
    cluster.check()
    configs = [broker_config(cluster, replica, "127.0.0.1:9876")[0] for replica in cluster.replicas]
    assert [
        (config.broker_name, config.broker_id, config.broker_role, config.listen_port, config.ha_listen_port)
        for config in configs
    ] == [
        ("broker-a", 0, "SYNC_MASTER", 10911, 10912),
        ("broker-a", 1, "SLAVE", 10913, 10914),
        ("broker-a", 2, "SLAVE", 10915, 10916),
        ("broker-b", 0, "SYNC_MASTER", 10921, 10922),
        ("broker-b", 1, "SLAVE", 10923, 10924),
        ("broker-b", 2, "SLAVE", 10925, 10926),
    ]
    names = ["broker-a", "broker-a-s1", "broker-a-s2", "broker-b", "broker-b-s1", "broker-b-s2"]
    assert [config.store_path_root_dir for config in configs] == [str(tmp_path / name) for name in names]


def test_the_last_slave_needs_a_port_too(tmp_path: Path) -> None:
    options(tmp_path, broker_port=65_531, slaves=2).check()
    with pytest.raises(ConfigError, match="--broker-port 65531: the last broker would need port 65537"):
        options(tmp_path, broker_port=65_531, slaves=3).check()


def test_a_synchronous_master_needs_a_slave(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^--sync: .*add --slaves 1$"):
        options(tmp_path, sync=True).check()


def test_with_failover_no_broker_has_a_role_before_etcd_decides(tmp_path: Path) -> None:
    cluster = options(tmp_path, slaves=2, failover=True)
    cluster.check()
    configs = [
        broker_config(cluster, replica, "127.0.0.1:9876", "127.0.0.1:2379")[0] for replica in cluster.replicas
    ]
    assert [
        (config.broker_name, config.broker_id, config.broker_role, config.failover_etcd_endpoints)
        for config in configs
    ] == [("broker-a", 0, "SYNC_MASTER", "127.0.0.1:2379")] * 3
    assert [config.listen_port for config in configs] == [10911, 10913, 10915]


def test_failover_needs_a_slave(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^--failover: .*add --slaves 2$"):
        options(tmp_path, failover=True).check()


def test_the_role_in_the_file_of_a_broker_holds_unless_an_option_sets_it(tmp_path: Path) -> None:
    path = tmp_path / "broker-a.properties"
    path.write_text("brokerRole=SYNC_MASTER\n")
    slave = tmp_path / "broker-a-s1.properties"
    slave.write_text("brokerRole=ASYNC_MASTER\nbrokerId=7\n")
    given = options(tmp_path, slaves=1)
    assert broker_config(given, FIRST, "127.0.0.1:1")[0].broker_role == "SYNC_MASTER"
    config, notes = broker_config(given, Replica(0, 1), "127.0.0.1:1")
    assert (config.broker_role, config.broker_id) == ("SLAVE", 1)
    assert notes == [
        f"{slave}:1: brokerRole=ASYNC_MASTER is not used: --slaves sets it",
        f"{slave}:2: brokerId=7 is not used: --slaves sets it",
    ]


def test_a_broker_that_does_not_stay_up_is_started_less_and_less_often() -> None:
    pauses = RestartPauses()
    assert [pauses.next_s(lived_s=1) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [pauses.next_s(lived_s=61), pauses.next_s(lived_s=1)] == [0.5, 1]


def test_the_port_of_grpc_clients_is_one_of_its_own(tmp_path: Path) -> None:
    options(tmp_path, grpc_port=8081).check()
    options(tmp_path, grpc_port=0).check()
    with pytest.raises(ConfigError, match="--http-port and --grpc-port are both 8081"):
        options(tmp_path, grpc_port=8081, http_port=8081).check()
    with pytest.raises(ConfigError, match="--grpc-port 70000: must be from 0 to 65535"):
        options(tmp_path, grpc_port=70_000).check()


def test_grpc_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(
        ConfigError, match=r"--grpc-port needs the extra `grpc`: pip install 'kourou\[grpc\]'"
    ):
        check_grpc()
    with pytest.raises(ConfigError, match=r"a proxy needs the extra `grpc`: pip install 'kourou\[grpc\]'"):
        check_installed()


@pytest.mark.parametrize("has_broker", [True, False])
def test_a_proxy_without_a_broker_in_its_process_checks_calls_itself(
    tmp_path: Path, has_broker: bool
) -> None:
    keys = SigningKeys("inner", "s")
    accounts = StandaloneAccounts(SigningKeys("admin", "s"), keys, tmp_path)
    settings = proxy_settings(
        options(tmp_path, accounts=accounts), "127.0.0.1:9876", [BrokerConfig()], has_broker=has_broker
    )
    assert (settings.own_keys, settings.follows_users) == (keys, not has_broker)
    assert settings.access.lockout is not None
    assert not proxy_settings(
        options(tmp_path), "127.0.0.1:9876", [BrokerConfig()], has_broker=False
    ).follows_users
