"""The HA port with access control: slaves and masters prove themselves, everybody else gets nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kourou.broker import wiring
from kourou.broker.replication.replica_status import ReplicaState
from kourou.protocol.ha import MasterHello, SlaveHello
from kourou.protocol.ha_proof import slave_proof
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.replication_kit import (
    FILE_BYTES,
    HandSlave,
    equal,
    following,
    links,
    master,
    namesrv,
    not_following,
    server,
    slave,
    until,
    warnings_of_port,
)

pytestmark = pytest.mark.e2e

INNER = {"inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"the secret"}'}
OTHER = {"inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"another secret"}'}


@pytest.fixture(autouse=True)
def access_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only of the HA port: requests are not checked here."""
    monkeypatch.setattr(wiring, "has_access_control", lambda config: True)


async def answers(peer: Peer, **fields: Any) -> tuple[MasterHello, MasterHello, dict[str, Any]]:
    """Open a link as a slave with the right keys does; both answers, and the second hello."""
    async with HandSlave.connected(peer) as hand:
        said = {"access_key": "inner", "nonce": "n", **fields}
        first = await hand.greet(**said)
        hello = SlaveHello(
            cluster="DefaultCluster",
            broker_name="broker-a",
            broker_id=1,
            min_phy_offset=0,
            max_phy_offset=0,
            file_bytes=FILE_BYTES,
            **said,
        )
        said["proof"] = slave_proof("the secret", first.challenge, hello)
        return first, await hand.greet(**said), said


async def test_a_slave_with_the_same_keys_follows_and_is_counted(tmp_path: Path) -> None:
    async with namesrv() as address, master(tmp_path, address, **INNER) as of_master:
        async with slave(tmp_path, address, **INNER) as of_slave:
            await of_master.send(body=b"one")
            await following(of_master, 1)
            await equal(of_master, of_slave)
        async with slave(tmp_path, address, **INNER) as of_slave:
            await of_master.send(body=b"two")
            await equal(of_master, of_slave)


@pytest.mark.parametrize(
    ("keys", "reason"), [(OTHER, "are not those of its master"), ({}, "does not prove itself")]
)
async def test_a_slave_without_the_keys_gets_nothing_and_both_sides_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, str], reason: str
) -> None:
    async with namesrv() as address, master(tmp_path, address, **INNER) as of_master:
        await of_master.send()
        async with slave(tmp_path, address, **keys) as of_slave:
            await until(lambda: len(warnings_of_port(caplog)) > 0, "the slave is refused")
            assert of_slave.controller.services.store.log.max_phy_offset == 0
            await not_following(of_slave, reason)
        assert all(
            reason in line and "innerClientAuthenticationCredentials" in line
            for line in warnings_of_port(caplog)
        )
        assert "secret" not in caplog.text


async def test_an_unsigned_hello_and_an_apache_slave_get_nothing_with_one_line_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with master(tmp_path, **INNER) as of_master:
        await of_master.send()
        for _ in range(3):
            async with HandSlave.connected(of_master) as hand:
                assert "haAllowedAddresses" in (await hand.greet()).refusal
                assert await hand.is_closed()
            async with HandSlave.connected(of_master) as hand:
                await hand.report(0)
                assert await hand.is_closed()
        (line,) = warnings_of_port(caplog)
        assert "a slave at 127.0.0.1 does not prove itself" in line
        assert not server(of_master).links


async def test_an_overheard_hello_is_refused(tmp_path: Path) -> None:
    async with master(tmp_path, **INNER) as of_master:
        challenge, accepted, overheard = await answers(of_master)
        assert challenge.challenge and not accepted.refusal and accepted.proof
        async with HandSlave.connected(of_master) as hand:
            another = await hand.greet(**overheard)
            assert another.challenge not in ("", challenge.challenge)
            assert "must be the same" in (await hand.greet(**overheard)).refusal
            assert await hand.is_closed()


async def test_a_slave_that_was_not_challenged_to_the_end_gets_nothing(tmp_path: Path) -> None:
    async with master(tmp_path, **INNER) as of_master, HandSlave.connected(of_master) as hand:
        await of_master.send()
        assert (await hand.greet(access_key="inner", nonce="n")).challenge
        assert not links(of_master)
        await hand.report(0)
        assert await hand.is_closed()


async def test_apaches_slave_is_let_in_by_address(tmp_path: Path) -> None:
    async with master(tmp_path, ha_allowed_addresses="127.0.0.0/8", **INNER) as of_master:
        await of_master.send()
        async with HandSlave.connected(of_master) as hand:
            await hand.report(0)
            assert (await hand.transfer()).data


async def test_a_peer_that_proves_nothing_loses_its_link_soon(tmp_path: Path) -> None:
    async with master(tmp_path, **INNER) as of_master, HandSlave.connected(of_master) as hand:
        await until(lambda: len(server(of_master).links) == 1, "it is connected")
        (link,) = server(of_master).links
        server(of_master).tick(link.opened + 6)
        assert await hand.is_closed()


async def test_a_slave_does_not_follow_a_master_that_cannot_prove_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would send would become part of the log."""
    async with namesrv() as address:
        with monkeypatch.context() as changed:
            changed.setattr(wiring, "has_access_control", lambda config: config.is_slave)
            async with master(tmp_path, address) as of_master, slave(tmp_path, address, **INNER) as of_slave:
                await of_master.send()
                await not_following(of_slave, "the master at 127.0.0.1 does not prove itself")
                assert of_slave.controller.services.store.log.max_phy_offset == 0


async def test_a_forged_master_does_not_stop_a_slave_by_saying_that_their_logs_have_parted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of a fail-over set would cut its log, any other would never follow again."""
    monkeypatch.setattr(wiring, "has_access_control", lambda config: config.is_slave)
    async with namesrv() as address:
        async with (
            master(tmp_path, address, **INNER) as of_master,
            slave(tmp_path, address, **INNER) as of_slave,
        ):
            await of_master.send(body=b"ours")
            await equal(of_master, of_slave)
        shutil.rmtree(tmp_path / "master")
        async with master(tmp_path, address, **OTHER), slave(tmp_path, address, **INNER) as of_slave:
            await not_following(of_slave, "they are the same up to 0")
            status = of_slave.controller.services.replica_status
            assert status.state is ReplicaState.CONNECTING and status.why_stopped is None
        async with master(tmp_path, address, **INNER), slave(tmp_path, address, **INNER) as of_slave:
            await until(lambda: is_stopped(of_slave), "the right master may say it")


def is_stopped(of_slave: Peer) -> bool:
    return of_slave.controller.services.replica_status.state is ReplicaState.STOPPED


async def test_access_control_can_be_turned_on_at_the_slave_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "has_access_control", lambda config: config.is_slave)
    async with namesrv() as address, master(tmp_path, address, **INNER) as of_master:
        async with slave(tmp_path, address, **INNER) as of_slave:
            await of_master.send()
            await equal(of_master, of_slave)
