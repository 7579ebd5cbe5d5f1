"""Replication between brokers with the users of RocketMQ 5: by real requests and the HA link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.signature import SigningKeys
from kourou.transport.client import RemotingClient
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.replication_kit import equal, following, log_end, master, namesrv, slave, until
from tests.e2e.broker.test_cluster import TOPIC, send_command

pytestmark = pytest.mark.e2e

INNER = SigningKeys("inner-account", "the secret")
ACCESS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "inner_client_authentication_credentials": '{"accessKey":"inner-account","secretKey":"the secret"}',
}
OTHER = {
    **ACCESS,
    "inner_client_authentication_credentials": '{"accessKey":"inner-account","secretKey":"another"}',
}


async def send(of_master: Peer) -> None:
    client = RemotingClient(keys=INNER)
    try:
        assert (await client.call(of_master.controller.address, send_command(b"x"))).code == 0
    finally:
        await client.stop()


@pytest.mark.parametrize("rules", ["users", "plain"])
async def test_a_slave_copies_log_and_tables(tmp_path: Path, rules: str) -> None:
    access = ACCESS if rules == "users" else plain_access(tmp_path)
    async with (
        namesrv() as address,
        master(tmp_path, address, **access) as of_master,
        slave(tmp_path, address, **access) as of_slave,
    ):
        await send(of_master)
        await following(of_master, 1)
        await equal(of_master, of_slave)
        topics = of_slave.controller.services.topics
        await until(lambda: TOPIC in topics.table and not topics.is_derived(TOPIC), "the topic is copied")


def plain_access(home: Path) -> dict[str, Any]:
    """The account of the servers in `plain_acl.yml`."""
    path = home / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(
        f"accounts:\n- {{accessKey: {INNER.access_key}, secretKey: {INNER.secret_key}, admin: true}}\n"
    )
    path.chmod(0o600)
    credentials = json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key})
    return {
        "acl_enable": True,
        "rocketmq_home": str(home),
        "inner_client_authentication_credentials": credentials,
    }


async def test_a_slave_with_other_keys_gets_nothing_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        namesrv() as address,
        master(tmp_path, address, **ACCESS) as of_master,
        slave(tmp_path, address, **OTHER) as of_slave,
    ):
        await send(of_master)
        status = of_slave.controller.services.replica_status
        await until(
            lambda: status.why_not_following is not None and "signature" in status.why_not_following, "why"
        )
        assert log_end(of_slave) == 0
    lines = [line for line in caplog.messages if line.startswith("not following the master")]
    assert len(lines) == 1 and "check signature failed" in lines[0]
    assert "another" not in caplog.text and "the secret" not in caplog.text
