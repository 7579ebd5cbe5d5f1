"""Contexts from settings: what is refused, and in which words."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.transport.settings import ClientAuth, ClientTlsConfig, ServerTlsConfig, TlsMode
from kourou.transport.tls import (
    client_context,
    describe_failure,
    describe_handshake,
    server_context,
    throw_away_certificate,
)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = throw_away_certificate()
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    paths[0].write_bytes(cert)
    paths[1].write_bytes(key)
    return paths


def test_permissive_without_certificate_serves_plain_only() -> None:
    assert server_context(ServerTlsConfig()) is None
    assert server_context(ServerTlsConfig(TlsMode.DISABLED, test_mode=True)) is None


def test_enforcing_without_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="set tls.server.certPath and tls.server.keyPath"):
        server_context(ServerTlsConfig(TlsMode.ENFORCING))


def test_test_mode_makes_its_own_certificate() -> None:
    context = server_context(ServerTlsConfig(TlsMode.ENFORCING, test_mode=True))
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE


def test_client_auth_asks_for_certificates(pair: tuple[Path, Path]) -> None:
    config = ServerTlsConfig(
        cert_path=pair[0], key_path=pair[1], trust_cert_path=pair[0], client_auth=ClientAuth.REQUIRE
    )
    context = server_context(config)
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_missing_file_is_named_with_its_key(pair: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"tls.server.keyPath: .*nowhere.pem is not a file"):
        server_context(ServerTlsConfig(cert_path=pair[0], key_path=Path("nowhere.pem")))


def test_key_of_another_certificate_is_recognised(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(throw_away_certificate()[1])
    with pytest.raises(ConfigError, match="the key does not belong to the certificate"):
        server_context(ServerTlsConfig(cert_path=pair[0], key_path=other))


def test_what_is_no_pem_file_is_recognised(pair: tuple[Path, Path]) -> None:
    pair[0].write_text("hello")
    with pytest.raises(ConfigError, match="contains no certificate; a PEM file is needed"):
        server_context(ServerTlsConfig(cert_path=pair[0], key_path=pair[1]))


def test_encrypted_key_needs_its_password(pair: tuple[Path, Path]) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pair[1].read_bytes(), None)
    pair[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    right = ServerTlsConfig(cert_path=pair[0], key_path=pair[1], key_password="secret")
    assert server_context(right) is not None
    with pytest.raises(ConfigError, match="the key is encrypted; set tls.server.keyPassword"):
        server_context(ServerTlsConfig(cert_path=pair[0], key_path=pair[1]))
    with pytest.raises(ConfigError, match=r"tls.server.keyPath: .*key.pem: .*password is wrong"):
        server_context(ServerTlsConfig(cert_path=pair[0], key_path=pair[1], key_password="guess"))


def test_forgotten_key_is_named(pair: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"tls.server.keyPath is not set, and .*cert.pem"):
        server_context(ServerTlsConfig(cert_path=pair[0]))


def test_swapped_files_are_recognised(pair: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"tls.server.certPath: .*key.pem: contains no certificate"):
        server_context(ServerTlsConfig(cert_path=pair[1], key_path=pair[0]))


def test_client_trusts_any_certificate_by_default(pair: tuple[Path, Path]) -> None:
    assert client_context(ClientTlsConfig()) is None
    trusting = client_context(ClientTlsConfig(enable=True))
    assert trusting is not None
    assert trusting.verify_mode is ssl.CERT_NONE
    strict = client_context(ClientTlsConfig(enable=True, auth_server=True, trust_cert_path=pair[0]))
    assert strict is not None
    assert strict.verify_mode is ssl.CERT_REQUIRED
    assert not strict.check_hostname


def test_failures_are_put_into_words() -> None:
    assert "does not speak TLS" in describe_failure(_ssl_error("WRONG_VERSION_NUMBER"))
    assert describe_failure(_ssl_error("SOMETHING_NEW")) == "SOMETHING_NEW"
    assert "closed during the handshake" in describe_handshake(ConnectionResetError())


def _ssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError()
    error.reason = reason
    return error
