"""The signature of a request.

Signed are the values of all extFields in the order of their names, without `Signature`, then the body. The
`Signature` is their HMAC-SHA1 with the secret key, in Base64; `AccessKey` and `SecurityToken` are fields like
any other and are set first. Code, version, flags and opaque are not signed, and there is no time in it: a
request that is overheard can be repeated, which only TLS prevents.
"""

from __future__ import annotations

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

# Requests of one kind have the same names in the same order: what is signed is sorted once.
_MAX_ORDERS: Final = 256
_MAX_NAMES_CHARACTERS: Final = 1_000

# HMAC with SHA-1, by RFC 2104.
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class _Order(NamedTuple):
    names: list[str]
    values: Callable[[Mapping[str, str]], tuple[str, ...]]
    """The values of these names."""


_orders: dict[tuple[str, ...], _Order] = {}


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
    if without:
        text = "".join([fields[name] for name in _order_of(fields).names if name not in without])
    else:
        text = "".join(_order_of(fields).values(fields))
    digest = hmac.digest(secret_key.encode(), text.encode() + body, "sha1")
    return b2a_base64(digest, newline=False).decode()


class HashedKey:
    """A secret key that signs many requests: what HMAC hashes of it is hashed once.

    >>> HashedKey("sk").signature_of({"topic": "T", "queueId": "0", "AccessKey": "ak"}, b"body")
    b'Hgg5qvd+x4pcTBBxFgXCwTBfD5I='
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode()
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key, usedforsecurity=False).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        # Broken as it is, SHA-1 is sound in HMAC, where `hmac` does not ask either.
        self._inner = hashlib.sha1(block.translate(_INNER), usedforsecurity=False)
        self._outer = hashlib.sha1(block.translate(_OUTER), usedforsecurity=False)

    def signature_of(self, fields: Mapping[str, str], body: bytes) -> bytes:
        """The signature of a request with all of its fields."""
        return self.signature_of_text("".join(_order_of(fields).values(fields)), body)

    def signature_of_text(self, text: str, body: bytes) -> bytes:
        """The same, of the values of its fields in their order."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text.encode() + body)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


def _order_of(fields: Mapping[str, str]) -> _Order:
    """The signed ones of these fields, in order; kept, unless a peer has sent very long names."""
    sent = tuple(fields)
    found = _orders.get(sent)
    if found is not None:
        return found
    names = sorted(name for name in sent if name != SIGNATURE)
    order = _Order(names, itemgetter(*names) if len(names) > 1 else partial(_values, names))
    if len("".join(sent)) <= _MAX_NAMES_CHARACTERS:
        if len(_orders) >= _MAX_ORDERS:
            _orders.clear()
        _orders[sent] = order
    return order


def _values(names: list[str], fields: Mapping[str, str]) -> tuple[str, ...]:
    return tuple([fields[name] for name in names])


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
