"""The name of a client certificate, and which certificates name nobody."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, cast

import pytest

from kourou.errors import ConfigError
from kourou.transport.certificate_user import CertificateUser, certificate_user
from kourou.transport.settings import ClientAuth, ServerTlsConfig
from kourou.transport.tls import server_context, throw_away_certificate

CERTIFICATE = {
    "subject": ((("organizationName", "Shop"),), (("commonName", "orders"),)),
    "subjectAltName": (("DNS", "host"), ("email", "orders@shop.example"), ("URI", "spiffe://shop/orders")),
}


class Peer:
    """What Python knows of a peer's certificate; empty if it was not verified."""

    def __init__(self, certificate: dict[str, Any] | None) -> None:
        self._certificate = certificate

    def getpeercert(self) -> dict[str, Any] | None:
        return self._certificate


def user_in(certificate: dict[str, Any] | None, source: CertificateUser) -> str | None:
    return certificate_user(cast("ssl.SSLObject", Peer(certificate)), source)


@pytest.mark.parametrize(
    ("source", "user"),
    [
        (CertificateUser.NONE, None),
        (CertificateUser.COMMON_NAME, "orders"),
        (CertificateUser.EMAIL, "orders@shop.example"),
        (CertificateUser.URI, "spiffe://shop/orders"),
    ],
)
def test_each_source(source: CertificateUser, user: str | None) -> None:
    assert user_in(CERTIFICATE, source) == user


@pytest.mark.parametrize("certificate", [None, {}], ids=["none", "not verified"])
def test_no_verified_certificate_no_user(certificate: dict[str, Any] | None) -> None:
    assert user_in(certificate, CertificateUser.COMMON_NAME) is None
    assert certificate_user(None, CertificateUser.COMMON_NAME) is None


@pytest.mark.parametrize(
    "names", [("orders", "admin"), ("",), (" ",), ("admin\0",), ("admin\n",), ()], ids=repr
)
def test_ambiguous_and_strange_names_are_no_user(names: tuple[str, ...]) -> None:
    subject = tuple((("commonName", name),) for name in names)
    assert user_in({"subject": subject}, CertificateUser.COMMON_NAME) is None


def test_a_name_needs_a_known_issuer(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path, content in zip((cert, key), throw_away_certificate(), strict=True):
        path.write_bytes(content)
    source = CertificateUser.COMMON_NAME
    with pytest.raises(ConfigError, match=r"clientCertificateUser=commonName needs certificates"):
        server_context(ServerTlsConfig(cert_path=cert, key_path=key, certificate_user=source))
    with pytest.raises(ConfigError, match=r"clientCertificateUser=commonName needs tls.server.trustCertPath"):
        server_context(
            ServerTlsConfig(
                cert_path=cert, key_path=key, certificate_user=source, client_auth=ClientAuth.REQUIRE
            )
        )
