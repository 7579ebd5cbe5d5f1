"""Credentials: the identity of a client, and the signature of each request.

Signed are the values of all extFields in the order of their names, without `Signature`, then the body. The
`Signature` is their HMAC-SHA1 with the secret key, in Base64; `AccessKey` and `SecurityToken` are fields like
any other and are set first. Every request is signed, including one-way requests and
those to the name server; fields that are added after signing invalidate the signature.
Not here: the verification (the broker).
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key, secret key, and the token of temporary keys. Secrets are not printed.

    >>> Credentials("ak", "sk")
    Credentials(access_key='ak')
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            value = getattr(self, name)
            # The value is not shown: it may be the secret.
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a str, not {type(value).__name__}")
        if not self.access_key or not self.secret_key:
            raise ValueError("access_key and secret_key are both needed, and neither may be empty")

    def sign(self, ext_fields: dict[str, str], body: bytes | bytearray | memoryview = b"") -> None:
        """Put access key, token and signature into `ext_fields`, replacing earlier ones.

        >>> fields = {"topic": "T", "queueId": "0"}
        >>> Credentials("ak", "sk").sign(fields, b"body")
        >>> fields["Signature"]
        'Hgg5qvd+x4pcTBBxFgXCwTBfD5I='
        """
        # A request that is sent again still has its previous signature.
        ext_fields.pop(SIGNATURE, None)
        ext_fields.pop(SECURITY_TOKEN, None)
        ext_fields[ACCESS_KEY] = self.access_key
        if self.security_token:
            ext_fields[SECURITY_TOKEN] = self.security_token
        signed = b"".join([*(ext_fields[name].encode() for name in sorted(ext_fields)), body])
        mac = hmac.digest(self.secret_key.encode(), signed, "sha1")
        ext_fields[SIGNATURE] = b64encode(mac).decode()
