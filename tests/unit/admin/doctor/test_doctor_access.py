"""What the doctor finds about access control: open brokers, plain text beside accounts, readable files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kourou.admin.doctor.checks_access import (
    _broker_files,
    _links,
    file_findings,
    link_findings,
    open_findings,
    plaintext_findings,
)
from kourou.admin.doctor.checks_servers import check_brokers
from kourou.admin.doctor.cluster_snapshot import BrokerView
from kourou.admin.doctor.findings import Finding, Severity
from kourou.admin.session import BrokerAddress
from kourou.protocol.names import COMPILED_KERNEL

PUBLIC, PRIVATE = "8.8.8.8:10911", "10.0.0.7:10911"


def broker(address: str, *, is_kourou: bool = True) -> BrokerView:
    runtime = {COMPILED_KERNEL: "in use"} if is_kourou else {}
    return BrokerView(BrokerAddress("c", "broker-a", 0, address), runtime, 1, 2)


def test_an_open_broker_at_a_public_address() -> None:
    [finding] = open_findings(broker(PUBLIC), {"aclEnable": "false"})
    assert finding.severity is Severity.PROBLEM
    assert "a public address, and no access control" in finding.what
    assert "authenticationEnabled=true" in finding.cure


@pytest.mark.parametrize(
    ("address", "config"),
    [
        (PRIVATE, {}),
        ("127.0.0.1:10911", {}),
        ("mq.example.com:10911", {}),
        (PUBLIC, {"aclEnable": "true"}),
        (PUBLIC, {"authenticationEnabled": "true"}),
        (PUBLIC, {"tls.server.mode": "enforcing", "tls.server.need.client.auth": "require"}),
    ],
)
def test_brokers_that_are_not_open_to_the_internet(address: str, config: dict[str, str]) -> None:
    assert not list(open_findings(broker(address), config))


def test_certificates_that_plain_connections_do_not_need_protect_nothing() -> None:
    assert list(open_findings(broker(PUBLIC), {"tls.server.need.client.auth": "require"}))


@pytest.mark.parametrize("key", ["aclEnable", "authenticationEnabled"])
def test_plain_text_beside_accounts(key: str) -> None:
    [finding] = plaintext_findings(broker(PRIVATE), {key: "true", "tls.server.mode": "permissive"})
    assert finding.severity is Severity.WARNING
    assert "tls.server.mode=enforcing" in finding.cure
    assert not list(plaintext_findings(broker(PRIVATE), {key: "true", "tls.server.mode": "enforcing"}))


def test_plain_text_without_accounts_on_loopback_and_of_apache() -> None:
    assert not list(plaintext_findings(broker(PRIVATE), {}))
    assert not list(plaintext_findings(broker("127.0.0.1:1"), {"aclEnable": "true"}))
    assert not list(plaintext_findings(broker(PRIVATE, is_kourou=False), {"aclEnable": "true"}))


SLAVE = "10.0.0.8:10911"
ACCOUNTS = {"authenticationEnabled": "true", "tls.server.mode": "permissive"}


def link(
    slave: dict[str, str], master: dict[str, str], *, address: str = SLAVE, apache: tuple[str, ...] = ()
) -> list[Finding]:
    return list(
        link_findings(
            (broker(address, is_kourou="slave" not in apache), slave),
            (broker(PRIVATE, is_kourou="master" not in apache), master),
        )
    )


def test_a_link_between_replicas_without_tls_beside_accounts() -> None:
    [finding] = link({}, ACCOUNTS)
    assert finding.severity is Severity.WARNING
    assert finding.where == f"broker broker-a ({SLAVE})"
    assert f"the log of its master {PRIVATE}, which has accounts, without TLS" in finding.what
    assert "tls.enable.ha=true" in finding.cure and "tls.server.mode.ha=enforcing" in finding.cure
    assert link({"tls.enable": "false"}, {**ACCOUNTS, "tls.server.mode": "disabled"})
    only_clients = {**ACCOUNTS, "tls.server.mode": "enforcing", "tls.server.mode.ha": "permissive"}
    assert link({}, only_clients), "clients must use TLS, slaves need not"


@pytest.mark.parametrize(
    ("slave", "master"),
    [
        ({"tls.enable": "true"}, ACCOUNTS),
        ({"tls.enable.ha": "true"}, ACCOUNTS),
        ({"tls.enable": "true", "tls.enable.ha": "false"}, ACCOUNTS),
        ({}, {**ACCOUNTS, "tls.server.mode": "enforcing"}),
        ({}, {**ACCOUNTS, "tls.server.mode.ha": "enforcing"}),
        ({}, {"tls.server.mode": "permissive"}),
    ],
)
def test_links_that_are_encrypted_or_need_not_be(slave: dict[str, str], master: dict[str, str]) -> None:
    """`tls.enable.ha=false`: the operator says that the network encrypts."""
    assert not link(slave, master)


def test_each_slave_has_a_link_to_the_master_of_its_name() -> None:
    def place(name: str, broker_id: int) -> tuple[BrokerView, dict[str, str]]:
        return BrokerView(BrokerAddress("c", name, broker_id, f"{name}-{broker_id}"), {}, 1, 2), {}

    read = [place("a", 1), place("a", 0), place("b", 0), place("b", 2), place("c", 1)]
    found = [(slave[0].place.address, master[0].place.address) for slave, master in _links(read)]
    assert found == [("a-1", "a-0"), ("b-2", "b-0")]


def test_replicas_on_one_host_need_no_tls() -> None:
    assert not link({}, ACCOUNTS, address="10.0.0.7:20911")


@pytest.mark.parametrize("apache", [("slave",), ("master",), ("slave", "master")])
def test_apaches_replicas_have_no_tls(apache: tuple[str, ...]) -> None:
    [finding] = link({"tls.enable": "true"}, ACCOUNTS, apache=apache)
    assert "private network" in finding.cure


def test_files_with_secrets_that_others_can_read(tmp_path: Path) -> None:
    conf, store = tmp_path / "home" / "conf", tmp_path / "store"
    (conf / "acl").mkdir(parents=True)
    (store / "config").mkdir(parents=True)
    key = tmp_path / "tls.key"
    secret = [conf / "plain_acl.yml", conf / "acl" / "more.yml", store / "config" / "users.json", key]
    for path in secret:
        path.write_text("x")
        path.chmod(0o644)
    (conf / "broker.conf").write_text("# secretKey=none\nbrokerName=a\n")
    (conf / "tools.yml").write_text("accessKey: ann\nsecretKey: s\n")
    (conf / "tools.yml").chmod(0o640)
    files = _broker_files(
        {
            "tls.server.keyPath": str(key),
            "rocketmqHome": str(tmp_path / "home"),
            "storePathRootDir": str(store),
        }
    )
    [finding] = file_findings(files, "broker a")
    assert finding.severity is Severity.WARNING
    assert sorted(finding.commands) == sorted(f"chmod 600 {path}" for path in secret)
    for path in secret:
        path.chmod(0o600)
    assert not list(file_findings(files, "broker a"))


def test_a_configuration_counts_if_it_has_a_password(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text('initAuthenticationUser={"username":"ann","password":"s"}\n')
    path.chmod(0o644)
    [finding] = file_findings([path, tmp_path / "missing"], "broker a")
    assert str(path) in finding.what and "missing" not in finding.what


async def test_a_broker_that_refuses_the_keys_is_not_away() -> None:
    """Its port is open: to start it or to open the port helps nobody."""
    place = BrokerAddress("c", "broker-a", 0, PRIVATE)
    refused = BrokerView(place, {}, 1, 2, "CODE: 16  DESC: check signature failed.", is_refused=True)
    away = BrokerView(place, {}, 1, 2, "connection refused")
    [first, second] = await check_brokers(SimpleNamespace(brokers=[refused, away]))  # type: ignore[arg-type]
    assert "access control refuses" in first.what and "--acl" in first.cure
    assert "no response" in second.what and "check whether it is running" in second.cure
