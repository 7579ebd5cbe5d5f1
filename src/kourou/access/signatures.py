"""Whether a request was signed with a secret key, by any of RocketMQ's clients.

Clients differ in what they sign. All sign fields and body, but some fields are signed by some versions only:
Go sends the security token unsigned, Java 5.x adds the fields of its zone after signing, and Java before
4.9.4 leaves the field of queries by unique key out. A signature without any of these is valid, too.
"""

from __future__ import annotations

import hmac
from itertools import combinations
from typing import Final

from kourou.access.model import AccessCall
from kourou.protocol.codes import RequestCode
from kourou.protocol.signature import SECURITY_TOKEN, SIGNATURE, signature_of

_ZONE_FIELDS: Final = ("__ZONE_NAME", "__ZONE_MODE")
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_MAYBE_UNSIGNED: Final = (SECURITY_TOKEN, *_ZONE_FIELDS, _UNIQUE_KEY_QUERY)


def is_signed_by(call: AccessCall, secret_key: str) -> bool:
    """Whether the signature of a call was made with this key; compared in constant time."""
    if call.signed_with and call.signed_with == secret_key:
        return True
    if call.is_signed_with is not None:
        return call.is_signed_with(secret_key)
    fields, body = call.fields, call.body
    given = fields.get(SIGNATURE, "").encode()
    if fields.keys().isdisjoint(_MAYBE_UNSIGNED):  # nearly all
        is_right = hmac.compare_digest(given, signature_of(fields, body, secret_key).encode())
    else:
        is_right = any(
            hmac.compare_digest(given, signature_of(fields, body, secret_key, without=without).encode())
            for without in _variants(call)
        )
    if is_right:
        call.signed_with = secret_key
    return is_right


def _variants(call: AccessCall) -> list[frozenset[str]]:
    """Fields that may be unsigned, by what the call has."""
    optional: list[tuple[str, ...]] = []
    if SECURITY_TOKEN in call.fields:
        optional.append((SECURITY_TOKEN,))
    if not call.fields.keys().isdisjoint(_ZONE_FIELDS):
        optional.append(_ZONE_FIELDS)
    if call.code == RequestCode.QUERY_MESSAGE and _UNIQUE_KEY_QUERY in call.fields:
        optional.append((_UNIQUE_KEY_QUERY,))
    return [
        frozenset(name for names in chosen for name in names)
        for count in range(len(optional) + 1)
        for chosen in combinations(optional, count)
    ]
