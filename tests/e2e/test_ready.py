"""`kourou ready`: what health checks of containers and services ask."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou import Producer
from kourou.embed import BrokerHooks, SendContext
from kourou.errors import RequestError
from kourou.protocol.codes import ResponseCode
from kourou.testing import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


def ready(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kourou.cli.main", "ready", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_broker_is_ready_when_it_has_stored_a_message(mq: LocalCluster) -> None:
    before = len(mq.messages("broker-a"))
    asked = ready("-b", mq.broker_addresses[0])
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == f"broker broker-a {mq.broker_addresses[0]}: ready\n"
    assert len(mq.messages("broker-a")) == before + 1


def test_all_servers_at_once(mq: LocalCluster) -> None:
    asked = ready("-n", mq.namesrv, "-b", mq.broker_addresses[0], "-b", mq.broker_addresses[1], "--json")
    result = json.loads(asked.stdout)
    assert (asked.returncode, result["ready"]) == (0, True)
    assert [server["server"].split()[0] for server in result["servers"]] == ["name", "broker", "broker"]
    assert ready("-n", mq.namesrv).stdout == f"name server {mq.namesrv}: ready\n"


def test_swapped_addresses_are_reported_as_what_they_are(mq: LocalCluster) -> None:
    broker, other = mq.broker_addresses
    asked = ready("-n", broker, "-b", mq.namesrv)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.splitlines() == [
        f"kourou ready: name server {broker}: this is broker broker-a, not a name server; "
        f"its name server is {mq.namesrv}",
        f"kourou ready: broker at {mq.namesrv}: this is a name server, not a broker; "
        f"its brokers are {', '.join(sorted([broker, other]))}",
    ]


def test_the_roles_of_brokers_with_slaves() -> None:
    with LocalCluster(slaves=1, sync=True) as mq:
        master, slave = mq.broker_addresses
        asked = ready("-b", master, "-b", slave)
        assert (asked.returncode, asked.stderr) == (0, "")
        assert asked.stdout.splitlines() == [
            f"broker broker-a {master}: ready (SYNC_MASTER)",
            f"broker broker-a {slave}: ready (SLAVE)",
        ]
        mq.stop_broker(broker_id=1)
        assert (
            ready("-b", master).stdout
            == f"broker broker-a {master}: ready (SYNC_MASTER, SLAVE_NOT_AVAILABLE)\n"
        )
        mq.start_broker(broker_id=1)
        mq.stop_broker()
        asked = ready("-b", slave)
        assert (asked.returncode, asked.stdout) == (1, "")
        assert asked.stderr.startswith(f"kourou ready: broker broker-a {slave}: connecting")


def refuse(message: SendContext) -> None:
    raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"broker_permission": 4}, "brokerPermission=4: clients may not send to it"),
        ({"hooks": BrokerHooks(before_send=[refuse])}, "CODE: 14  DESC: the disk is full"),
    ],
)
def test_a_broker_that_answers_but_takes_no_messages_is_not_ready(
    settings: dict[str, Any], words: str
) -> None:
    with LocalCluster(**settings) as mq:
        asked = ready("-b", mq.broker_addresses[0])
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.startswith("kourou ready: broker broker-a 127.0.0.1:")
    assert words in asked.stderr and asked.stderr.count("\n") == 1


def test_a_broker_that_hangs_or_is_gone_is_not_ready() -> None:
    with LocalCluster() as mq:
        (address,) = mq.broker_addresses
        with mq.pause():
            hung = ready("-b", address)
        mq.stop_broker()
        gone = ready("-b", address, "--json")
    assert (hung.returncode, gone.returncode) == (1, 1)
    assert "no answer" in hung.stderr
    assert "refused" in json.loads(gone.stdout)["servers"][0]["problem"]


def test_a_broker_that_is_not_registered_is_not_ready(mq: LocalCluster) -> None:
    with LocalCluster(broker_cluster_name="Other") as other:
        other.stop_broker()
        asked = ready("-n", other.namesrv, "-b", mq.broker_addresses[1])
    assert asked.returncode == 1
    assert f"name server {other.namesrv}: broker-b is not registered here" in asked.stderr


def test_waiters_learn_when_it_is_ready() -> None:
    with LocalCluster() as mq:
        (address,) = mq.broker_addresses
        mq.stop_broker()
        back = threading.Timer(1.0, mq.start_broker)
        back.start()
        asked = ready("-b", address, "-n", mq.namesrv, "--wait", "30")
        back.join()
        assert (asked.returncode, asked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "problem", "code"),
    [
        (["-b", "nowhere"], "'nowhere' is not an address; write host:port", 1),
        (["-b", "127.0.0.1:1"], "broker at 127.0.0.1:1: cannot connect", 1),
        (["-n", "127.0.0.1:1"], "name server 127.0.0.1:1: cannot connect", 1),
        (["--wait", "x"], "Invalid value for '--wait'", 2),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], problem: str, code: int) -> None:
    asked = ready(*arguments)
    assert (asked.returncode, asked.stdout) == (code, "")
    assert asked.stderr.startswith(f"kourou ready: {problem}") and asked.stderr.count("\n") == 1


def test_a_name_server_is_no_broker(mq: LocalCluster) -> None:
    asked = ready("-b", mq.namesrv)
    assert asked.returncode == 1 and asked.stderr.count("\n") == 1


def test_what_it_stores_is_no_topic_of_yours(mq: LocalCluster) -> None:
    ready("-b", mq.broker_addresses[0])
    with Producer("test", namesrv=mq.namesrv) as producer:
        assert producer.queues("broker-a")  # it was there before, as in every cluster


def test_a_broker_with_access_control_and_tls_needs_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "tools.yml"
    keys.write_text("accessKey: probe\nsecretKey: the-secret\n")
    with LocalCluster(
        authentication_enabled=True,
        init_authentication_user='{"username":"probe","password":"the-secret"}',
        tls_test_mode_enable=True,
    ) as cluster:
        (address,) = cluster.broker_addresses
        assert "the request was not signed" in ready("-b", address).stderr
        assert ready("-b", address, "--acl", str(keys), "--tls").returncode == 0
        monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "probe")
        monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "wrong")
        wrong = ready("-b", address)
        assert "check access key and secret key of user 'probe'" in wrong.stderr
        assert "wrong" not in wrong.stderr
