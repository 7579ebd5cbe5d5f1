"""TLS contexts from RocketMQ's settings, and TLS failures in words.

Certificates and keys are PEM files. Host names are not verified, like in RocketMQ: trust is in the issuer.
Not here: distinguishing TLS from plaintext on one port (listener.py).
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from kourou.errors import ConfigError
from kourou.transport.certificate_user import CertificateUser
from kourou.transport.settings import ClientAuth, ClientTlsConfig, ServerTlsConfig, TlsMode
from kourou.transport.tls_files import FollowedContext

T = TypeVar("T")

_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}

# OpenSSL's reasons, and what a user should check.
_CAUSES = {
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS on this port",
    "HTTP_REQUEST": "the peer speaks HTTP without TLS",
    "UNEXPECTED_EOF_WHILE_READING": "the peer closed during the handshake; does it speak TLS here?",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate and one is required",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server requires a client certificate; set tls.client.certPath",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the issuer of our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "NO_SHARED_CIPHER": "no cipher is known to both sides",
}


def server_context(config: ServerTlsConfig) -> ssl.SSLContext | None:
    """The context of a listening side, or None if it serves plaintext connections only."""
    if config.mode is TlsMode.DISABLED:
        return None
    if config.cert_path is None and not config.test_mode:
        if config.mode is TlsMode.ENFORCING:
            raise ConfigError(
                f"{config.mode_key} is enforcing but there is no certificate; set tls.server.certPath "
                "and tls.server.keyPath, or turn on tls.test.mode.enable for a throw-away one"
            )
        return None
    _check_certificate_user(config)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if config.cert_path is None:
        _load_throw_away(context)
    else:
        _load_chain(context, "tls.server", config.cert_path, config.key_path, config.key_password)
    _ask_clients(context, config)
    if config.alpn:
        context.set_alpn_protocols(list(config.alpn))
    return context


def client_context(config: ClientTlsConfig) -> ssl.SSLContext | None:
    """The context of a connecting side, or None without TLS."""
    if not config.enable:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if config.auth_server else ssl.CERT_NONE
    if config.auth_server:
        _load_trust(context, "tls.client.trustCertPath", config.trust_cert_path)
    if config.cert_path is not None:
        _load_chain(context, "tls.client", config.cert_path, config.key_path, config.key_password)
    return context


def follow_server(config: ServerTlsConfig, title: str) -> FollowedContext:
    """The context of a listening side, which follows its files."""
    files = (config.cert_path, config.key_path, config.trust_cert_path)
    return FollowedContext(title, lambda: server_context(config), files)


def follow_client(config: ClientTlsConfig, title: str = "outgoing connections") -> FollowedContext:
    """The context of a connecting side, which follows its files."""
    files = (config.cert_path, config.key_path, config.trust_cert_path)
    return FollowedContext(title, lambda: client_context(config), files)


def plaintext_warning(config: ServerTlsConfig, port: int) -> str:
    """What an operator may not expect of required certificates at this port, or nothing."""
    is_open = config.mode is TlsMode.PERMISSIVE and (config.cert_path is not None or config.test_mode)
    if config.client_auth is not ClientAuth.REQUIRE or not is_open:
        return ""
    return (
        f"port {port}: client certificates are required, but a connection without TLS needs none; set "
        f"{config.mode_key}=enforcing"
    )


def describe_failure(error: BaseException) -> str:
    """The cause of the end of a connection or handshake, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{_CAUSES['CERTIFICATE_VERIFY_FAILED']}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        return f"{_CAUSES[reason]} ({reason})" if reason in _CAUSES else reason
    return str(error) or type(error).__name__


def describe_handshake(error: BaseException) -> str:
    """The cause of a failed handshake: a connection that just ends there has one more likely cause."""
    if isinstance(error, ConnectionError | EOFError):
        return _CAUSES["UNEXPECTED_EOF_WHILE_READING"]
    return describe_failure(error)


def _check_certificate_user(config: ServerTlsConfig) -> None:
    """A name is as good as its issuer: it must be known, and asked for."""
    source = config.certificate_user
    if source is CertificateUser.NONE:
        return
    key = f"tls.server.clientCertificateUser={source.value}"
    if config.client_auth is ClientAuth.NONE:
        raise ConfigError(f"{key} needs certificates; set tls.server.need.client.auth to require or optional")
    if config.trust_cert_path is None:
        raise ConfigError(
            f"{key} needs tls.server.trustCertPath, the issuer of your clients' certificates: with the "
            "system's issuers anybody could get a certificate with the name of an administrator"
        )


def _ask_clients(context: ssl.SSLContext, config: ServerTlsConfig) -> None:
    context.verify_mode = _VERIFY_MODES[config.client_auth]
    if config.client_auth is not ClientAuth.NONE:
        _load_trust(context, "tls.server.trustCertPath", config.trust_cert_path)


def _load_trust(context: ssl.SSLContext, key: str, path: Path | None) -> None:
    if path is None:
        context.load_default_certs()
        return
    _reading(key, path, lambda: context.load_verify_locations(cafile=path))


def _load_chain(
    context: ssl.SSLContext, prefix: str, cert: Path, key: Path | None, password: str | None
) -> None:
    for name, path in ((f"{prefix}.certPath", cert), (f"{prefix}.keyPath", key)):
        if path is not None and not _reading(name, path, path.is_file):
            raise ConfigError(f"{name}: {path} is not a file")
    cert_text = _reading(f"{prefix}.certPath", cert, cert.read_bytes)
    key_text = cert_text if key is None else _reading(f"{prefix}.keyPath", key, key.read_bytes)
    if b"-----BEGIN CERTIFICATE-----" not in cert_text:
        raise ConfigError(f"{prefix}.certPath: {cert}: contains no certificate; a PEM file is needed")
    if b"PRIVATE KEY-----" not in key_text:
        problem = f"{prefix}.keyPath is not set, and" if key is None else f"{prefix}.keyPath:"
        raise ConfigError(f"{problem} {key or cert}: contains no private key; a PEM file is needed")
    if b"ENCRYPTED" in key_text and not password:
        raise ConfigError(f"{prefix}.keyPath: {key or cert}: the key is encrypted; set {prefix}.keyPassword")
    # Otherwise damage in the certificate would be reported as damage in the key.
    _reading(
        f"{prefix}.certPath",
        cert,
        lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=cert),
    )
    # The password is a function in any case: without one OpenSSL would prompt at the terminal.
    _reading(
        f"{prefix}.keyPath",
        key or cert,
        lambda: context.load_cert_chain(cert, key, password=lambda: password or ""),
    )


def _reading(key: str, path: Path, load: Callable[[], T]) -> T:
    try:
        return load()
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            cause = "the key does not belong to the certificate"
        elif key.endswith("keyPath"):
            cause = "it is damaged, or its password is wrong"
        else:
            cause = "it is damaged"
        raise ConfigError(f"{key}: {path}: {cause}") from error
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror or error}") from error


def _load_throw_away(context: ssl.SSLContext) -> None:
    cert, key = throw_away_certificate()
    with tempfile.TemporaryDirectory(prefix="kourou-tls-") as folder:
        cert_path, key_path = Path(folder, "cert.pem"), Path(folder, "key.pem")
        cert_path.write_bytes(cert)
        key_path.touch(mode=0o600)
        key_path.write_bytes(key)
        context.load_cert_chain(cert_path, key_path)


def throw_away_certificate(common_name: str = "Kourou self-signed certificate") -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, PEM, for `tls.test.mode.enable`."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ConfigError(
            "tls.test.mode.enable creates a certificate and needs a library: pip install 'kourou[tls-test]'"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return cert.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
