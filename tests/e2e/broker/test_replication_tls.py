"""The link between master and slave with TLS: encrypted, verified, beside peers without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.broker import wiring
from kourou.config.namesrv import NamesrvConfig
from kourou.errors import ConfigError
from kourou.namesrv.server import NameServer
from kourou.transport.addresses import parse_address
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.replication_kit import (
    HandSlave,
    equal,
    following,
    ha_address,
    links,
    master,
    namesrv,
    not_following,
    slave,
    until,
    warnings_of_port,
)
from tests.e2e.transport.certificate_kit import Issuer

pytestmark = pytest.mark.e2e

CLIENT = "kourou.broker.replication.replica_client"
Keys = dict[str, Any]


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path, "issuer")


@pytest.fixture
def serving(issuer: Issuer) -> Keys:
    """A certificate for a server; TLS and plaintext, as by default."""
    cert, key = issuer.issue("server", "broker-a")
    return {"tls_server_cert_path": str(cert), "tls_server_key_path": str(key)}


@pytest.fixture
def verifying(issuer: Issuer) -> Keys:
    """TLS of a slave, which trusts the issuer and no other. Its requests to the master are not encrypted."""
    return {
        "tls_enable_ha": True,
        "tls_client_auth_server": True,
        "tls_client_trust_cert_path": str(issuer.cert_path),
    }


def served_certificate(peer: Peer) -> str:
    """The certificate that a new connection to the port for slaves gets, PEM."""
    host, port = parse_address(ha_address(peer))
    return ssl.get_server_certificate((host, port))


def problems_of_slave(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage() for each in caplog.records if each.name == CLIENT and each.levelno > logging.INFO
    ]


@contextlib.asynccontextmanager
async def overheard(target: str) -> AsyncIterator[tuple[str, bytearray]]:
    """A relay to a port: its address, and what has gone through, both ways."""
    heard = bytearray()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                heard.extend(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*parse_address(target))
        await asyncio.gather(relay(reader, to_writer), relay(to_reader, writer))

    listening = await asyncio.start_server(accepted, "127.0.0.1", 0)
    async with listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", heard


async def test_a_slave_catches_up_by_tls_and_follows(
    tmp_path: Path, serving: Keys, verifying: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        namesrv() as address,
        master(tmp_path, address, broker_role="SYNC_MASTER", **serving) as of_master,
    ):
        for _ in range(60):
            await of_master.send(body=b"x" * 50_000)
        async with slave(tmp_path, address, **verifying) as of_slave:
            await following(of_master, 1)
            await equal(of_master, of_slave)
            for number in range(20):
                assert (await of_master.send(body=b"%d" % number)).code == 0, "the slave acknowledges"
            await equal(of_master, of_slave)
            (link,) = links(of_master)
            assert link.is_tls
    assert not problems_of_slave(caplog)


async def test_nothing_of_a_message_can_be_overheard(tmp_path: Path, serving: Keys, verifying: Keys) -> None:
    async with namesrv() as address, master(tmp_path, address, **serving) as of_master:
        await of_master.send(body=b"confidential")
        for keys, is_readable in ((verifying, False), ({}, True)):
            async with overheard(ha_address(of_master)) as (relay, heard):
                async with slave(tmp_path, address, ha_master_address=relay, **keys) as of_slave:
                    await equal(of_master, of_slave)
            assert (b"confidential" in heard) == is_readable
            shutil.rmtree(tmp_path / "slave-1")


async def test_tls_enable_encrypts_requests_and_the_link(
    tmp_path: Path, serving: Keys, issuer: Issuer
) -> None:
    enforcing = {**serving, "tls_server_mode": "enforcing"}
    outgoing = {
        "tls_enable": True,
        "tls_client_auth_server": True,
        "tls_client_trust_cert_path": str(issuer.cert_path),
    }
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", **enforcing)
    async with NameServer(config) as names:
        address = names.address
        async with (
            master(tmp_path, address, **enforcing, **outgoing) as of_master,
            slave(tmp_path, address, **outgoing) as of_slave,
        ):
            await following(of_master, 1)
            await equal(of_master, of_slave)
            (link,) = links(of_master)
            assert link.is_tls


async def test_a_master_with_a_certificate_of_another_issuer_is_not_followed(
    tmp_path: Path, serving: Keys, verifying: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "others").mkdir()
    other = Issuer(tmp_path / "others", "other")
    wrong = {**verifying, "tls_client_trust_cert_path": str(other.cert_path)}
    async with namesrv() as address, master(tmp_path, address, **serving) as of_master:
        await of_master.send()
        async with slave(tmp_path, address, **wrong) as of_slave:
            await not_following(of_slave, "its certificate is not trusted")
            await until(lambda: len(warnings_of_port(caplog)) > 0, "the master says it, too")
            assert of_slave.controller.services.store.log.max_phy_offset == 0
        (line,) = problems_of_slave(caplog)
        assert line.startswith(f"not following the master at {ha_address(of_master)}, retrying: TLS with ")
        (line,) = warnings_of_port(caplog)
        assert "the peer does not trust the issuer of our certificate" in line
        async with slave(tmp_path, address, **verifying) as of_slave:
            await equal(of_master, of_slave)


async def test_a_slave_without_tls_is_told_to_use_it(
    tmp_path: Path, serving: Keys, verifying: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    enforcing = {**serving, "tls_server_mode_ha": "enforcing"}
    async with namesrv() as address, master(tmp_path, address, **enforcing) as of_master:
        await of_master.send()
        async with slave(tmp_path, address) as of_slave:
            await not_following(of_slave, "set tls.enable=true or tls.enable.ha=true at the slave")
            assert of_slave.controller.services.store.log.max_phy_offset == 0
        async with HandSlave.connected(of_master) as hand:
            await hand.report(0)
            assert await hand.is_closed()
        assert all("tls.server.mode.ha=enforcing" in line for line in warnings_of_port(caplog))
        async with slave(tmp_path, address, **verifying) as of_slave:
            await equal(of_master, of_slave)


async def test_tls_is_demanded_before_a_proof(
    tmp_path: Path, serving: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nonce and a proof belong to one link; nobody else should have them."""
    monkeypatch.setattr(wiring, "has_access_control", lambda config: True)
    inner = {"inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"the secret"}'}
    async with master(tmp_path, tls_server_mode_ha="enforcing", **serving, **inner) as of_master:
        async with HandSlave.connected(of_master) as hand:
            answer = await hand.greet(access_key="inner", nonce="n")
            assert "TLS only" in answer.refusal and not answer.challenge


async def test_slaves_without_tls_are_served_beside_those_with_it(
    tmp_path: Path, serving: Keys, verifying: Keys
) -> None:
    async with namesrv() as address, master(tmp_path, address, **serving) as of_master:
        await of_master.send(body=b"one")
        async with (
            slave(tmp_path, address, **verifying) as with_tls,
            slave(tmp_path, address, broker_id=2) as without,
            HandSlave.connected(of_master) as of_apache,
        ):
            await of_apache.report(0)
            assert b"one" in bytes((await of_apache.transfer()).data)
            await following(of_master, 3)
            await equal(of_master, with_tls)
            await equal(of_master, without)
            assert sorted(link.is_tls for link in links(of_master)) == [False, False, True]


async def test_with_access_control_both_sides_prove_themselves_by_tls(
    tmp_path: Path, serving: Keys, verifying: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "has_access_control", lambda config: True)
    inner = {"inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"the secret"}'}
    async with namesrv() as address, master(tmp_path, address, **serving, **inner) as of_master:
        await of_master.send()
        async with slave(tmp_path, address, **verifying, **inner) as of_slave:
            await equal(of_master, of_slave)


async def test_certificates_of_slaves_can_be_required(
    tmp_path: Path, serving: Keys, verifying: Keys, issuer: Issuer
) -> None:
    required = {
        **serving,
        "tls_server_mode_ha": "enforcing",
        "tls_server_need_client_auth": "require",
        "tls_server_trust_cert_path": str(issuer.cert_path),
    }
    cert, key = issuer.issue("slave", "broker-a-s")
    own = {"tls_client_cert_path": str(cert), "tls_client_key_path": str(key)}
    async with namesrv() as address, master(tmp_path, address, **required) as of_master:
        await of_master.send()
        async with slave(tmp_path, address, **verifying) as of_slave:
            await not_following(of_slave, "the server requires a client certificate; set tls.client.certPath")
        async with slave(tmp_path, address, **verifying, **own) as of_slave:
            await equal(of_master, of_slave)


async def test_a_master_that_may_be_apaches_gets_plaintext_unless_tls_is_demanded(
    tmp_path: Path, serving: Keys, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a name server a slave does not know whose master it is, and uses Apache's link."""
    outgoing = {
        "tls_enable": True,
        "tls_client_auth_server": True,
        "tls_client_trust_cert_path": str(issuer.cert_path),
    }
    async with master(tmp_path, **serving) as of_master:
        for demanded in (None, True):
            outgoing["tls_enable_ha"] = demanded
            async with slave(tmp_path, ha_master_address=ha_address(of_master), **outgoing) as of_slave:
                await of_master.send()
                await equal(of_master, of_slave)
                (link,) = links(of_master)
                assert link.is_tls == bool(demanded)
    (line,) = problems_of_slave(caplog)
    assert line.startswith("the link to the master is not encrypted, although tls.enable is on")


async def test_a_renewed_certificate_is_used_while_a_slave_is_connected(
    tmp_path: Path, serving: Keys, verifying: Keys, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with namesrv() as address, master(tmp_path, address, **serving) as of_master:
        async with slave(tmp_path, address, **verifying) as of_slave:
            await following(of_master, 1)
            (before,) = links(of_master)
            issuer.issue("server", "broker-a")
            renewed = (tmp_path / "server.crt").read_text()

            async def is_renewed() -> bool:
                return await asyncio.to_thread(served_certificate, of_master) == renewed

            async with asyncio.timeout(20):
                while not await is_renewed():  # noqa: ASYNC110 (a server reports no event)
                    await asyncio.sleep(0.1)
            await of_master.send(body=b"by the old one")
            await equal(of_master, of_slave)
            assert links(of_master) == [before], "the link is still there"
            before.close("for the test")
            await until(lambda: links(of_master) not in ([], [before]), "the slave comes back")
            await of_master.send(body=b"by the new one")
            await equal(of_master, of_slave)
    assert "for slaves: TLS files have changed and are used for new connections" in caplog.text


async def test_a_renewed_issuer_is_used_by_a_slave_that_connects_again(
    tmp_path: Path, serving: Keys, verifying: Keys
) -> None:
    """The slave has the wrong one at first, and is not restarted."""
    trusted = tmp_path / "trusted.pem"
    (tmp_path / "others").mkdir()
    shutil.copy(Issuer(tmp_path / "others", "other").cert_path, trusted)
    keys = {**verifying, "tls_client_trust_cert_path": str(trusted)}
    async with namesrv() as address, master(tmp_path, address, **serving) as of_master:
        await of_master.send()
        async with slave(tmp_path, address, **keys) as of_slave:
            await not_following(of_slave, "its certificate is not trusted")
            shutil.copy(tmp_path / "issuer.pem", trusted)
            await until(lambda: len(links(of_master)) == 1, "the slave follows", 20)
            await equal(of_master, of_slave)


async def test_a_master_without_a_certificate_says_why_a_slave_with_tls_cannot_follow(
    tmp_path: Path, verifying: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with namesrv() as address, master(tmp_path, address):
        async with slave(tmp_path, address, **verifying) as of_slave:
            await not_following(of_slave, "does it speak TLS here?")
        (line,) = warnings_of_port(caplog)
        assert "it opens a TLS connection, and this port serves plaintext only" in line


async def test_a_port_for_slaves_that_enforces_tls_needs_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.mode\.ha is enforcing but there is no certificate"):
        async with master(tmp_path, tls_server_mode_ha="enforcing"):
            pass


async def test_a_stranger_who_never_ends_a_handshake_keeps_no_slave_out(
    tmp_path: Path, serving: Keys, verifying: Keys
) -> None:
    async with namesrv() as address, master(tmp_path, address, **serving) as of_master:
        held = [await asyncio.open_connection(*parse_address(ha_address(of_master))) for _ in range(100)]
        for _, writer in held:
            writer.write(b"\x16\x03\x01\x02")
        async with slave(tmp_path, address, **verifying) as of_slave:
            await of_master.send()
            await following(of_master, 1)
            await equal(of_master, of_slave)
        for _, writer in held:
            writer.close()
