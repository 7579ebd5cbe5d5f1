"""Callbacks: what the payment provider reports to the shop by HTTP, and how the shop verifies it.

POST with the JSON of a Callback. The header X-Signature is the HMAC-SHA256 of the body in hexadecimal digits,
with a secret that only the provider and the shop know (`provider_secret` of the settings).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from webshop.errors import Code, RefusedError

SIGNATURE: Final = "X-Signature"


class CallbackKind(StrEnum):
    """What is reported about a charge."""

    PROCESSING = "PROCESSING"
    PAID = "PAID"
    DECLINED = "DECLINED"


@dataclass(frozen=True, slots=True)
class Callback:
    """One report; `amount` is cents."""

    callback_id: str
    payment_id: str
    kind: CallbackKind
    amount: int

    def encode(self) -> bytes:
        """The body of the request."""
        return msgspec.json.encode(self)


def sign(secret: str, body: bytes) -> str:
    """The signature of a body."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def verified_callback(secret: str, body: bytes, signature: str | None) -> Callback:
    """The callback of a body; RefusedError if it was not signed with the secret, or is none."""
    # Compared in constant time: how long the answer takes says nothing about the right signature.
    if not hmac.compare_digest(sign(secret, body).encode(), (signature or "").encode()):
        raise RefusedError(
            Code.WRONG_SIGNATURE,
            f"the header {SIGNATURE} is missing, or is not the HMAC-SHA256 of the body; "
            "check that provider and shop have the same provider_secret",
            status=401,
        )
    try:
        return msgspec.json.decode(body, type=Callback)
    except msgspec.DecodeError as error:
        raise RefusedError(Code.BAD_REQUEST, f"the callback cannot be read: {error}", status=400) from None
