"""Certificates that are renewed while a server runs, and names in certificates as users."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from kourou.errors import KourouError
from kourou.transport.certificate_user import CertificateUser
from kourou.transport.request import Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import (
    ClientAuth,
    ClientTlsConfig,
    RemotingClientConfig,
    RemotingServerConfig,
    ServerTlsConfig,
    TlsMode,
)

from .certificate_kit import Issuer
from .conftest import Run
from .test_server_client import ECHO, calling, command, free_port, serving

WHO = 9


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path, "issuer")


def who(request: Request) -> None:
    request.reply({"user": str(request.connection.certificate_user)})


def config_of(cert: tuple[Path, Path], **more: object) -> RemotingServerConfig:
    tls = ServerTlsConfig(TlsMode.ENFORCING, *cert, look_every_s=0.02, **more)  # type: ignore[arg-type]
    return RemotingServerConfig(tls=tls)


@asynccontextmanager
async def open_stream(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A TLS connection of Python's own, which trusts everybody."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def served_certificate(port: int) -> bytes:
    """The certificate that a new connection gets, DER."""
    async with open_stream(port) as (_, writer):
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(der, bytes)
        return der


def der_of(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await is_so():  # noqa: ASYNC110 (a server reports no event)
            await asyncio.sleep(0.02)


async def wait_served(port: int, expected: bytes) -> None:
    async def is_served() -> bool:
        return await served_certificate(port) == expected

    await wait_until(is_served)


def test_a_renewed_certificate_is_served_and_old_connections_stay(run: Run, issuer: Issuer) -> None:
    async def work() -> None:
        pair = issuer.issue("server", "server")
        trusting = RemotingClientConfig(tls=ClientTlsConfig(enable=True))
        async with serving(config=config_of(pair)) as server, calling(config=trusting) as client:
            await client.call(server.address, command(ECHO))
            before = await client.connection(server.address)
            assert await served_certificate(server.port) == der_of(pair[0])
            issuer.issue("server", "server")
            await wait_served(server.port, der_of(pair[0]))
            assert (await client.call(server.address, command(ECHO, b"still"))).body == b"still"
            assert await client.connection(server.address) is before

    run(work())


def test_a_broken_certificate_keeps_the_old_one(
    run: Run, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        pair = issuer.issue("server", "server")
        old = der_of(pair[0])
        async with serving(config=config_of(pair)) as server:
            pair[0].write_text("broken")

            async def is_logged() -> bool:
                return "previous ones stay" in caplog.text

            await wait_until(is_logged)
            assert await served_certificate(server.port) == old
            await asyncio.sleep(0.1)  # several looks
        assert caplog.text.count("contains no certificate") == 1

    run(work())


def test_a_changed_trust_file_decides_about_new_clients(run: Run, tmp_path: Path, issuer: Issuer) -> None:
    """The issuer of clients is replaced: its clients are served, those of the one before are not."""

    async def work() -> None:
        other = Issuer(tmp_path, "other")
        trust = tmp_path / "trust.pem"
        trust.write_bytes(issuer.cert_path.read_bytes())
        config = config_of(
            issuer.issue("server", "server"), trust_cert_path=trust, client_auth=ClientAuth.REQUIRE
        )
        async with serving(config=config) as server:
            first = client_config(issuer.issue("first", "first"))
            second = client_config(other.issue("second", "second"))
            assert await may_connect(server, first)
            assert not await may_connect(server, second)
            trust.write_bytes(other.cert_path.read_bytes())
            await wait_until(lambda: may_connect(server, second))
            assert not await may_connect(server, first)

    run(work())


def client_config(pair: tuple[Path, Path]) -> RemotingClientConfig:
    return RemotingClientConfig(tls=ClientTlsConfig(enable=True, cert_path=pair[0], key_path=pair[1]))


async def may_connect(server: RemotingServer, config: RemotingClientConfig) -> bool:
    async with calling(config=config) as client:
        try:
            await client.call(server.address, command(ECHO))
        except KourouError:
            return False
        return True


def test_a_client_uses_its_renewed_certificate(run: Run, issuer: Issuer) -> None:
    async def work() -> None:
        config = config_of(
            issuer.issue("server", "server"),
            trust_cert_path=issuer.cert_path,
            client_auth=ClientAuth.REQUIRE,
            certificate_user=CertificateUser.COMMON_NAME,
        )
        tls = replace(client_config(issuer.issue("client", "before")).tls, look_every_s=0.0)
        async with serving({WHO: who}, config) as server:
            async with calling(config=RemotingClientConfig(tls=tls)) as client:
                assert await user_of(client, server) == "before"
                issuer.issue("client", "after")
                client.close_connection(server.address, "test")
                assert await user_of(client, server) == "after"

    run(work())


async def user_of(client: object, server: RemotingServer) -> str:
    answer = await client.call(server.address, command(WHO))  # type: ignore[attr-defined]
    return str(answer.ext_fields["user"])


@pytest.mark.parametrize(
    ("source", "user"),
    [
        (CertificateUser.COMMON_NAME, "orders"),
        (CertificateUser.EMAIL, "orders@shop.example"),
        (CertificateUser.URI, "spiffe://shop/orders"),
        (CertificateUser.NONE, "None"),
    ],
)
def test_the_certificate_is_the_user(run: Run, issuer: Issuer, source: CertificateUser, user: str) -> None:
    async def work() -> None:
        config = config_of(
            issuer.issue("server", "server"),
            trust_cert_path=issuer.cert_path,
            client_auth=ClientAuth.OPTIONAL,
            certificate_user=source,
        )
        pair = issuer.issue(
            "client",
            "orders",
            x509.RFC822Name("orders@shop.example"),
            x509.UniformResourceIdentifier("spiffe://shop/orders"),
        )
        async with serving({WHO: who}, config) as server:
            async with calling(config=client_config(pair)) as client:
                assert await user_of(client, server) == user
            trusting = RemotingClientConfig(tls=ClientTlsConfig(enable=True))
            async with calling(config=trusting) as client:
                assert await user_of(client, server) == "None"

    run(work())


def test_each_port_has_its_own_requirement(run: Run, issuer: Issuer) -> None:
    async def work() -> None:
        config = config_of(
            issuer.issue("server", "server"),
            trust_cert_path=issuer.cert_path,
            client_auth=ClientAuth.REQUIRE,
            certificate_user=CertificateUser.COMMON_NAME,
        )
        trusting = RemotingClientConfig(tls=ClientTlsConfig(enable=True))
        async with serving(config=config) as server:
            port = free_port()
            await server.listen_also(port, ClientAuth.NONE)
            async with calling(config=trusting) as client:
                assert (await client.call(f"127.0.0.1:{port}", command(ECHO, b"x"))).body == b"x"
            assert not await may_connect(server, trusting)

    run(work())


def test_plaintext_beside_required_certificates_is_warned_of(
    run: Run, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        config = config_of(issuer.issue("server", "server"), client_auth=ClientAuth.REQUIRE)
        permissive = replace(config, tls=replace(config.tls, mode=TlsMode.PERMISSIVE))
        async with serving(config=config):
            assert not caplog.records
        async with serving(config=permissive):
            assert "a connection without TLS needs none; set tls.server.mode=enforcing" in caplog.text

    run(work())
