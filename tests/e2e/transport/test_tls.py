"""TLS over loopback: three server modes, certificates on both sides, causes in words."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from kourou.errors import ConnectionLostError, KourouError, TlsError
from kourou.transport.settings import (
    ClientAuth,
    ClientTlsConfig,
    RemotingClientConfig,
    RemotingServerConfig,
    ServerTlsConfig,
    TlsMode,
)
from kourou.transport.tls import throw_away_certificate

from .conftest import Run
from .test_server_client import ECHO, calling, command, serving

PLAIN = RemotingClientConfig()
TRUSTING = RemotingClientConfig(tls=ClientTlsConfig(enable=True))


class Pair:
    """A certificate and its key in files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert, self.key = folder / f"{name}.cert.pem", folder / f"{name}.key.pem"
        cert, key = throw_away_certificate(name)
        self.cert.write_bytes(cert)
        self.key.write_bytes(key)


@pytest.fixture
def server_pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, "server")


@pytest.fixture
def client_pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, "client")


def server_config(pair: Pair, mode: TlsMode, **more: object) -> RemotingServerConfig:
    tls = ServerTlsConfig(mode, pair.cert, pair.key, **more)  # type: ignore[arg-type]
    return RemotingServerConfig(tls=tls)


async def echoes(address: str, config: RemotingClientConfig) -> bool:
    async with calling(config=config) as client:
        return (await client.call(address, command(ECHO, b"x" * 100_000))).body == b"x" * 100_000


def test_permissive_port_takes_plain_and_tls(run: Run, server_pair: Pair) -> None:
    async def work() -> None:
        async with serving(config=server_config(server_pair, TlsMode.PERMISSIVE)) as server:
            assert await echoes(server.address, TRUSTING)
            assert await echoes(server.address, PLAIN)

    run(work())


def test_many_tls_and_plain_clients_at_once(run: Run, server_pair: Pair) -> None:
    async def work() -> None:
        async with serving(config=server_config(server_pair, TlsMode.PERMISSIVE)) as server:
            configs = [TRUSTING, PLAIN] * 20
            assert all(await asyncio.gather(*(echoes(server.address, config) for config in configs)))

    run(work())


def test_enforcing_port_closes_plain_connections_and_says_why(
    run: Run, server_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(config=server_config(server_pair, TlsMode.ENFORCING)) as server:
            with pytest.raises(ConnectionLostError, match="without any answer; if the server requires TLS"):
                await echoes(server.address, PLAIN)
            assert await echoes(server.address, TRUSTING)

    run(work())
    assert "tls.server.mode=enforcing" in caplog.text


def test_disabled_port_refuses_tls_with_a_hint_on_both_sides(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        config = RemotingServerConfig(tls=ServerTlsConfig(TlsMode.DISABLED))
        async with serving(config=config) as server:
            with pytest.raises(TlsError, match="does it speak TLS here"):
                await echoes(server.address, TRUSTING)

    run(work())
    assert "it looks like TLS" in caplog.text


def test_client_that_verifies_refuses_a_foreign_certificate(
    run: Run, server_pair: Pair, client_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    def verifying(trusted: Path) -> RemotingClientConfig:
        return RemotingClientConfig(
            tls=ClientTlsConfig(enable=True, auth_server=True, trust_cert_path=trusted)
        )

    async def work() -> None:
        async with serving(config=server_config(server_pair, TlsMode.PERMISSIVE)) as server:
            assert await echoes(server.address, verifying(server_pair.cert))
            with pytest.raises(TlsError, match="its certificate is not trusted: self-signed certificate"):
                await echoes(server.address, verifying(client_pair.cert))

    run(work())
    assert "TLS handshake with 127.0.0.1" in caplog.text


def test_server_that_requires_certificates_takes_only_trusted_clients(
    run: Run, server_pair: Pair, client_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        config = server_config(
            server_pair,
            TlsMode.PERMISSIVE,
            trust_cert_path=client_pair.cert,
            client_auth=ClientAuth.REQUIRE,
        )
        known = ClientTlsConfig(enable=True, cert_path=client_pair.cert, key_path=client_pair.key)
        async with serving(config=config) as server:
            assert await echoes(server.address, RemotingClientConfig(tls=known))
            with pytest.raises(KourouError, match="(?i)certificate"):
                await echoes(server.address, TRUSTING)

    run(work())
    assert "the client sent no certificate and one is required" in caplog.text


def test_sockets_that_never_speak_are_swept(run: Run, server_pair: Pair) -> None:
    async def work() -> None:
        async with serving(config=server_config(server_pair, TlsMode.PERMISSIVE)) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as silent:
                silent.setblocking(False)
                await asyncio.sleep(0.05)
                server.sweep(asyncio.get_running_loop().time() + 121)
                assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""
            assert await echoes(server.address, PLAIN)

    run(work())


def test_test_mode_needs_no_files(run: Run) -> None:
    async def work() -> None:
        config = RemotingServerConfig(tls=ServerTlsConfig(TlsMode.ENFORCING, test_mode=True))
        async with serving(config=config) as server:
            assert await echoes(server.address, TRUSTING)

    run(work())
