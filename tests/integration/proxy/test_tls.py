"""TLS of the gRPC port as its configuration, or that of a broker in the same process, says."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from kourou.cli.proxy import ConfiguredProxy, proxy_line
from kourou.config.proxy_loader import load_proxy_config
from kourou.errors import ConfigError
from kourou.proxy.http2 import frames
from kourou.standalone.one_process import Standalone
from kourou.standalone.options import StandaloneOptions
from kourou.transport.tls import throw_away_certificate

# Nobody listens there: a proxy starts without its name server.
_NOWHERE = "127.0.0.1:1"


def configured(**more: str) -> ConfiguredProxy:
    keys = {"grpcServerPort": "0", "bindAddress": "127.0.0.1", "namesrvAddr": _NOWHERE}
    config, _ = load_proxy_config(None, keys | {key.replace("_", "."): more[key] for key in more})
    return ConfiguredProxy(config)


async def subject_by_tls(port: int) -> str:
    """The name in the certificate of a port that speaks HTTP/2 by TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(frames.PREFACE + frames.encode_settings({}))
        assert await reader.read(1)
    raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    (name,) = x509.load_der_x509_certificate(raw).subject
    return str(name.value)


async def serves_plaintext(port: int) -> bool:
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.PREFACE + frames.encode_settings({}))
        try:
            return bool(await reader.read(1))
        except ConnectionError:
            return False
        finally:
            writer.close()


async def test_a_port_that_enforces_tls_refuses_plaintext() -> None:
    proxy = configured(tls_server_mode="enforcing")
    await proxy.start()
    try:
        port = int(proxy.address.rpartition(":")[2])
        assert not await serves_plaintext(port)
        assert await subject_by_tls(port) == "Kourou self-signed certificate"
        assert proxy_line(proxy).endswith(
            ", TLS only; the certificate is self-made, clients cannot verify it"
        )
    finally:
        await proxy.stop(1_000)


async def test_enforced_tls_without_a_certificate_does_not_start() -> None:
    proxy = configured(tls_server_mode="enforcing", tlsTestModeEnable="false")
    with pytest.raises(
        ConfigError, match="enforcing but there is no certificate; set tlsCertPath and tlsKeyPath"
    ):
        await proxy.start()


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
async def test_the_port_of_a_standalone_has_the_tls_of_its_broker(tmp_path: Path, mode: str) -> None:
    cert, key = throw_away_certificate("of-the-operator")
    (tmp_path / "cert.pem").write_bytes(cert)
    (tmp_path / "key.pem").write_bytes(key)
    store = tmp_path / "store"
    store.mkdir()
    (store / "broker-a.properties").write_text(
        f"tls.server.mode={mode}\n"
        f"tls.server.certPath={tmp_path / 'cert.pem'}\ntls.server.keyPath={tmp_path / 'key.pem'}\n"
    )
    options = StandaloneOptions(store=store, namesrv_port=0, broker_port=0, grpc_port=0)
    async with Standalone(options) as running:
        port = int((running.grpc_address or "").rpartition(":")[2])
        assert await subject_by_tls(port) == "of-the-operator"
        assert await serves_plaintext(port) is (mode == "permissive")
        assert running.grpc_tls_words == ("TLS only" if mode == "enforcing" else "plaintext and TLS")
