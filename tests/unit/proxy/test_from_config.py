"""The settings of a proxy from its configuration: TLS of the gRPC port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kourou.config.proxy import ProxyConfig
from kourou.proxy.from_config import grpc_tls
from kourou.proxy.settings import tls_words
from kourou.transport.certificate_user import CertificateUser
from kourou.transport.settings import ClientAuth, ServerTlsConfig, TlsMode

_SELF_MADE = "; the certificate is self-made, clients cannot verify it"
_BROKER = ServerTlsConfig(
    mode=TlsMode.ENFORCING,
    cert_path=Path("broker.pem"),
    key_path=Path("broker.key"),
    client_auth=ClientAuth.REQUIRE,
    trust_cert_path=Path("ca.pem"),
    certificate_user=CertificateUser.COMMON_NAME,
)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, f"plaintext and TLS{_SELF_MADE}"),
        ({"tls_test_mode_enable": False}, "plaintext only"),
        ({"tls_cert_path": "a.pem"}, "plaintext and TLS"),
        ({"tls_server_mode": "enforcing"}, f"TLS only{_SELF_MADE}"),
        ({"tls_server_mode": "enforcing", "tls_cert_path": "a.pem"}, "TLS only"),
        ({"tls_server_mode": "disabled", "tls_cert_path": "a.pem"}, "plaintext only"),
    ],
)
def test_how_clients_may_connect(keys: dict[str, Any], words: str) -> None:
    assert tls_words(grpc_tls(ProxyConfig(**keys))) == words


def test_what_is_left_open_is_as_at_the_broker() -> None:
    tls = grpc_tls(ProxyConfig(), _BROKER)
    assert (tls.mode, tls.cert_path, tls.client_auth) == (
        TlsMode.ENFORCING,
        Path("broker.pem"),
        ClientAuth.REQUIRE,
    )
    assert tls.certificate_user is CertificateUser.NONE


def test_what_is_set_counts_before_the_broker() -> None:
    config = ProxyConfig(tls_server_mode="permissive", tls_cert_path="own.pem", tls_key_path="own.key")
    tls = grpc_tls(config, _BROKER)
    assert (tls.mode, tls.cert_path, tls.key_path) == (
        TlsMode.PERMISSIVE,
        Path("own.pem"),
        Path("own.key"),
    )
