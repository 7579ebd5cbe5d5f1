"""The signature of a request.

Signed are the values of all extFields in the order of their names, without `Signature`, then the body. The
`Signature` is their HMAC-SHA1 with the secret key, in Base64; `AccessKey` and `SecurityToken` are fields like
any other and are set first. Code, version, flags and opaque are not signed, and there is no time in it: a
request that is overheard can be repeated, which only TLS prevents.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

# Requests of one kind have the same names in the same order: what is signed is sorted once.
_MAX_ORDERS: Final = 256
_MAX_NAMES_CHARACTERS: Final = 1_000
_orders: dict[tuple[str, ...], list[str]] = {}


def signature_of(
    fields: Mapping[str, str],
    body: bytes | bytearray | memoryview,
    secret_key: str,
    *,
    without: Collection[str] = (),
) -> str:
    """The signature of a request that has these fields, apart from those of `without`.

    >>> signature_of({"topic": "T", "queueId": "0", "AccessKey": "ak"}, b"body", "sk")
    'Hgg5qvd+x4pcTBBxFgXCwTBfD5I='
    """
    sent = tuple(fields)
    names = _orders.get(sent) or _ordered(sent)
    if without:
        names = [name for name in names if name not in without]
    signed = "".join([fields[name] for name in names]).encode() + body
    return b2a_base64(hmac.digest(secret_key.encode(), signed, "sha1"), newline=False).decode()


def _ordered(sent: tuple[str, ...]) -> list[str]:
    """The signed ones of these names, in order; kept, unless a peer has sent very long ones."""
    names = sorted(name for name in sent if name != SIGNATURE)
    if len("".join(sent)) <= _MAX_NAMES_CHARACTERS:
        if len(_orders) >= _MAX_ORDERS:
            _orders.clear()
        _orders[sent] = names
    return names


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """An account and the key that signs for it. The key is not printed.

    >>> SigningKeys("inner", "secret")
    SigningKeys(access_key='inner')
    """

    access_key: str
    secret_key: str = field(repr=False)

    def sign(self, ext_fields: dict[str, str], body: bytes) -> None:
        """Put access key and signature into the fields of a request, replacing earlier ones.

        >>> fields = {"topic": "T", "queueId": "0"}
        >>> SigningKeys("ak", "sk").sign(fields, b"body")
        >>> fields["Signature"]
        'Hgg5qvd+x4pcTBBxFgXCwTBfD5I='
        """
        ext_fields[ACCESS_KEY] = self.access_key
        ext_fields[SIGNATURE] = signature_of(ext_fields, body, self.secret_key)
