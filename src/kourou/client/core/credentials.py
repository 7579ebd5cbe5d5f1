"""Credentials: the identity of a client, which signs each request.

Every request is signed, including one-way requests and those to the name server; fields that are added after
signing invalidate the signature (protocol/signature.py). Not here: the verification (access/).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kourou.errors import ConfigError
from kourou.protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature_of


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

    @classmethod
    def from_environment(cls) -> Credentials:
        """The keys in ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY and, if there is one, ROCKETMQ_SECURITY_TOKEN.
        ConfigError without them."""
        from kourou.client.core.credentials_sources import credentials_of_environment

        found = credentials_of_environment()
        if found is None:
            raise ConfigError("ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY are not set")
        return found

    @classmethod
    def from_file(cls, path: str | Path) -> Credentials:
        """The keys in a file: lines `accessKey: …` and `secretKey: …`, or with `=`, as in Apache's
        `tools.yml` and `key`. ConfigError without them."""
        from kourou.client.core.credentials_sources import read_tools_file

        found = read_tools_file(Path(path))
        if found is None:
            raise ConfigError(f"{path}: accessKey and secretKey are both needed")
        return found

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
        ext_fields[SIGNATURE] = signature_of(ext_fields, body, self.secret_key)
