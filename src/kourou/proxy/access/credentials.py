"""The account of a gRPC call, and its signature, in the metadata `authorization` and `x-mq-date-time`.

    MQv2-HMAC-SHA1 Credential=<access key>[/…], SignedHeaders=x-mq-date-time, Signature=<hex>

The signature is the HMAC-SHA1 of the date's text with the secret key. Nothing else is signed, and clients
write the date in their own ways and zones: a call that is overheard can be repeated, which only TLS prevents.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AUTHORIZATION: Final = "authorization"
DATE: Final = "x-mq-date-time"

# Regions and services follow the access key, after slashes.
_FORM: Final = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=([^/,\s]*)[^,]*,\s*SignedHeaders=[^,]*,\s*Signature=([0-9A-Fa-f]*)\s*"
)
_MAX_CHARACTERS: Final = 1_024


@dataclass(frozen=True, slots=True)
class GrpcCredentials:
    """What a call says of its account."""

    access_key: str
    """Empty: nothing."""
    signature: str
    """Hexadecimal, in lower case."""
    signed_text: str

    def is_signed_with(self, secret_key: str) -> bool:
        """Whether the signature was made with this key; compared in constant time."""
        made = hmac.digest(secret_key.encode(), self.signed_text.encode(), "sha1").hex()
        return hmac.compare_digest(made, self.signature)


NO_CREDENTIALS: Final = GrpcCredentials("", "", "")


def credentials_of(metadata: Mapping[str, str]) -> GrpcCredentials:
    """The credentials of a call; without a header of this form there are none.

    >>> credentials_of({"authorization": "MQv2-HMAC-SHA1 Credential=ak//RocketMQ, "
    ...                 "SignedHeaders=x-mq-date-time, Signature=0AFF", "x-mq-date-time": "20260101T000000Z"})
    GrpcCredentials(access_key='ak', signature='0aff', signed_text='20260101T000000Z')
    """
    header = metadata.get(AUTHORIZATION)
    if not header or len(header) > _MAX_CHARACTERS:
        return NO_CREDENTIALS
    found = _FORM.fullmatch(header)
    if found is None:
        return NO_CREDENTIALS
    return GrpcCredentials(found[1], found[2].lower(), metadata.get(DATE, ""))
