"""The texts of a signed send with a JSON header, read in the order in which they are signed.

A server has the typed header of a send already (request_head.py); what is signed is the text of its fields.
To read all fields into a dict and put its names in order costs twice as much as this, for every message. Only
SEND_MESSAGE_V2 is read here, and only fields that it is known to have: `None` for any other.
Not here: the general way (`Request.ext_fields`), the signature (signature.py).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE

_SIGNED_NAMES: Final = sorted([*SendMessageRequestHeaderV2.__struct_encode_fields__, ACCESS_KEY])
_ACCESS_KEY_AT: Final = _SIGNED_NAMES.index(ACCESS_KEY)
_TOPIC_AT: Final = _SIGNED_NAMES.index("b")
_Fields: Final = msgspec.defstruct(
    # A field that is absent signs nothing, as an empty one does. The signature is last, as it is not signed.
    "_Fields",
    [(name, str, "") for name in (*_SIGNED_NAMES, SIGNATURE)],
    gc=False,
    forbid_unknown_fields=True,
)
_Head: Final = msgspec.defstruct("_Head", [("extFields", _Fields)], gc=False)
_decode: Final = msgspec.json.Decoder(_Head).decode
_texts_of: Final = msgspec.structs.astuple


class SignedSend(NamedTuple):
    """One send: who signs it, for which topic, and what."""

    access_key: str
    topic: str
    text: str
    """The values of all fields that are signed; the body follows."""
    signature: str


def read_signed_send(header: bytes) -> SignedSend | None:
    """The texts of a SEND_MESSAGE_V2; None: it has other fields, or values that are no text.

    >>> read_signed_send(b'{"code":310,"extFields":{"b":"T","Signature":"s","AccessKey":"ak","e":"0"}}')
    SignedSend(access_key='ak', topic='T', text='akT0', signature='s')
    """
    try:
        head: Any = _decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    texts = _texts_of(head.extFields)
    return SignedSend(texts[_ACCESS_KEY_AT], texts[_TOPIC_AT], "".join(texts[:-1]), texts[-1])
