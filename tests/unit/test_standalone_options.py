"""What standalone's options mean for ports, stores and configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.standalone.options import StandaloneOptions, broker_config, namesrv_config


def options(store: Path, **more: Any) -> StandaloneOptions:
    return StandaloneOptions(store=store, **more)


def test_brokers_have_names_stores_and_ports_ten_apart(tmp_path: Path) -> None:
    three = options(tmp_path, brokers=3)
    three.check()
    configs = [broker_config(three, index, "127.0.0.1:9876")[0] for index in range(3)]
    assert [config.broker_name for config in configs] == ["broker-a", "broker-b", "broker-c"]
    assert [config.listen_port for config in configs] == [10911, 10921, 10931]
    assert [config.store_path_root_dir for config in configs] == [
        str(tmp_path / name) for name in ("broker-a", "broker-b", "broker-c")
    ]
    assert {config.namesrv_addr for config in configs} == {"127.0.0.1:9876"}


def test_it_listens_on_loopback_and_advertises_that(tmp_path: Path) -> None:
    config, notes = broker_config(options(tmp_path), 0, "127.0.0.1:9876")
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
    assert [free.port_of(index) for index in range(2)] == [0, 0]


def test_all_problems_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        options(tmp_path, brokers=27, namesrv_port=-1, broker_port=70_000, http_port=65_536).check()
    assert caught.value.problems == (
        "--brokers 27: must be from 1 to 26",
        "--namesrv-port -1: must be from 0 to 65535; 0 picks a free one",
        "--broker-port 70000: must be from 0 to 65535; 0 picks a free one",
        "--http-port 65536: must be from 0 to 65535; 0 picks a free one",
    )


def test_a_folder_that_is_a_store_is_served_as_it_is_by_one_broker(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert options(tmp_path).store_of(0) == tmp_path
    with pytest.raises(ConfigError, match="is the store of one broker; leave --brokers"):
        options(tmp_path, brokers=2).check()


def test_stores_of_more_brokers_than_asked_for_are_found(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b", "broker-c"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    assert options(tmp_path, brokers=2).unserved_stores == [tmp_path / "broker-c"]


def test_keys_in_the_brokers_file_are_taken_up_and_options_win(tmp_path: Path) -> None:
    (tmp_path / "broker-a.properties").write_text("brokerName=x\nflushDiskType=SYNC_FLUSH\n")
    config, _ = broker_config(options(tmp_path), 0, "127.0.0.1:1")
    assert (config.broker_name, config.flush_disk_type) == ("broker-a", "SYNC_FLUSH")
    assert config.broker_config_path == str(tmp_path / "broker-a.properties")


def test_a_key_in_the_brokers_file_that_an_option_sets_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "broker-a.properties"
    path.write_text("flushDiskType=SYNC_FLUSH\nlistenPort=4\n")
    config, notes = broker_config(options(tmp_path), 0, "127.0.0.1:1")
    assert config.listen_port != 4
    assert notes == [f"{path}:2: listenPort=4 is not used: --broker-port sets it"]
