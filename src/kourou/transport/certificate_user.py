"""The name of a client certificate, as the user of a connection.

Only for certificates that were verified against `tls.server.trustCertPath`: Python returns the content of no
other. Not here: what the user may do (access/).
"""

from __future__ import annotations

import enum
import ssl
from typing import Any


class CertificateUser(enum.Enum):
    """Which name of a client certificate is the user (`tls.server.clientCertificateUser`)."""

    NONE = "none"
    COMMON_NAME = "commonName"
    EMAIL = "sanEmail"
    URI = "sanUri"


def certificate_user(tls: ssl.SSLObject | None, source: CertificateUser) -> str | None:
    """The user of a connection; None without a verified certificate, or if it does not have exactly one such
    name: the holder of several must not choose between them."""
    if tls is None or source is CertificateUser.NONE:
        return None
    names = _names(tls.getpeercert() or {}, source)
    if len(names) != 1 or not names[0].strip() or not names[0].isprintable():
        return None
    return names[0]


def _names(certificate: dict[str, Any], source: CertificateUser) -> list[str]:
    if source is CertificateUser.COMMON_NAME:
        subject = certificate.get("subject", ())
        return [value for part in subject for name, value in part if name == "commonName"]
    wanted = "email" if source is CertificateUser.EMAIL else "URI"
    return [value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted]
