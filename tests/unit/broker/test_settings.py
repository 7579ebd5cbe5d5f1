"""Settings of store and retention from a broker's configuration."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kourou.broker.settings import retention_config, store_config, store_host, transfer_limits
from kourou.config import BrokerConfig
from kourou.errors import ConfigError
from kourou.store.retention import RetentionConfig
from kourou.store.settings import FlushDiskType, MessageStoreConfig
from kourou.transport.listener import bind_problem

HOST = MessageStoreConfig(root=Path("/s")).store_host


def test_defaults_are_the_stores_own() -> None:
    assert store_config(BrokerConfig(store_path_root_dir="/s"), HOST) == MessageStoreConfig(root=Path("/s"))
    assert retention_config(BrokerConfig()) == RetentionConfig()


@pytest.mark.parametrize(("percentage", "of_master", "of_slave"), [(40, 400, 300), (5, 50, 0)])
def test_less_memory_counts_on_a_slave(
    monkeypatch: pytest.MonkeyPatch, percentage: int, of_master: int, of_slave: int
) -> None:
    monkeypatch.setattr("kourou.broker.settings.memory_bytes", lambda: 1_000)
    keys = {"access_message_in_memory_max_ratio": percentage}
    slave = BrokerConfig(broker_role="SLAVE", broker_id=1, **keys)
    assert transfer_limits(BrokerConfig(**keys)).memory_bytes == of_master
    assert transfer_limits(slave).memory_bytes == of_slave


def test_keys_reach_the_store() -> None:
    config = BrokerConfig(
        store_path_root_dir="/s",
        store_path_commit_log="/d1, /d2",
        flush_disk_type="SYNC_FLUSH",
        message_delay_level="1s 1m",
        max_transfer_bytes_per_pull=2048,
        mapped_file_size_consume_queue=300_001,
    )
    store = store_config(config, HOST)
    assert store.commit_log_folders == (Path("/d1"), Path("/d2"))
    assert store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert store.delay_levels == (1_000, 60_000)
    assert store.max_transfer_bytes == 2048
    # Rounded up to whole units of 20 bytes.
    assert store.consume_queue_file_bytes == 300_020


def test_keys_reach_retention() -> None:
    config = BrokerConfig(delete_when="04;16", file_reserved_time=1, delete_unread_under_pressure=True)
    retention = retention_config(config)
    assert retention.delete_when == {4, 16}
    assert retention.file_reserved_ms == 3_600_000
    assert retention.delete_unread_under_pressure


@pytest.mark.parametrize("role", ["SYNC_MASTER", "SLAVE"])
@pytest.mark.parametrize("endpoints", ["", "127.0.0.1:2379"])
def test_only_a_slave_of_a_set_keeps_files_on_a_full_disk(role: str, endpoints: str) -> None:
    config = BrokerConfig(broker_role=role, broker_id=int(role == "SLAVE"), failover_etcd_endpoints=endpoints)
    assert retention_config(config).clean_forcibly_enable is not (role == "SLAVE" and bool(endpoints))


def test_a_broker_without_a_folder_for_its_store_says_so() -> None:
    with pytest.raises(ConfigError, match="storePathRootDir is not set"):
        store_config(BrokerConfig(), HOST)


@pytest.mark.parametrize(
    ("ip", "host"), [("10.0.0.1", b"\x0a\0\0\1\0\0\0\7"), ("::1", b"\0" * 15 + b"\1\0\0\0\7")]
)
def test_the_advertised_address_as_records_keep_it(ip: str, host: bytes) -> None:
    assert store_host(BrokerConfig(broker_ip1=ip, listen_port=7)) == host


def test_a_name_is_looked_up_and_ipv4_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(10, 1, 6, "", ("::1", 7, 0, 0)), (2, 1, 6, "", ("10.0.0.1", 7))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    assert store_host(BrokerConfig(broker_ip1="broker", listen_port=7)) == b"\x0a\0\0\1\0\0\0\7"


def test_an_unknown_name_is_an_error_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    with pytest.raises(ConfigError, match="brokerIP1=nowhere: the name cannot be resolved"):
        store_host(BrokerConfig(broker_ip1="nowhere"))
    with pytest.raises(ConfigError, match="bindAddress=nowhere: the name cannot be resolved"):
        store_host(BrokerConfig(broker_ip1="nowhere", bind_address="nowhere"))
    assert bind_problem("nowhere", 1, socket.gaierror(socket.EAI_NONAME, "Name or service not known")) == (
        "cannot listen on nowhere:1: the name cannot be resolved (Name or service not known); "
        "check bindAddress"
    )
