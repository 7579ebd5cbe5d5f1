"""A certificate authority for tests: certificates with names, and their keys, in files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM: Final = serialization.Encoding.PEM


class Issuer:
    """A certificate authority that writes certificates and keys to a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.cert_path = folder / f"{name}.pem"
        own = self._build(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.cert_path.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def issue(self, file_name: str, common_name: str, *alternatives: x509.GeneralName) -> tuple[Path, Path]:
        """Write a certificate and its key; replaces files of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
        builder = self._build(name, key)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        paths = self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key"
        paths[0].write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        paths[1].write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return paths

    def _build(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )
