"""The signature of a request.

Signed are the values of all extFields in the order of their names, without `Signature`, then the body. The
`Signature` is their HMAC-SHA1 with the secret key, in Base64; `AccessKey` and `SecurityToken` are fields like
any other and are set first. Code, version, flags and opaque are not signed, and there is no time in it: a
request that is overheard can be repeated, which only TLS prevents.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"


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
    names = sorted(name for name in fields if name != SIGNATURE and name not in without)
    signed = b"".join([*(fields[name].encode() for name in names), body])
    return b64encode(hmac.digest(secret_key.encode(), signed, "sha1")).decode()
