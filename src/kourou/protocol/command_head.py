"""CommandHead: a command's header as read from the wire, with undecoded extFields.

Not here: reading the bytes (`header_json`, `header_binary`), reading the fields (`ext_fields`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from kourou.protocol.codes import LanguageCode

if TYPE_CHECKING:
    SentFields = msgspec.Raw | dict[str, str] | msgspec.Struct | None
else:
    # msgspec takes no Raw in a union. The JSON decoder only ever makes Raw or the default, and the
    # binary one builds the object itself.
    SentFields = msgspec.Raw

# Java's fields have 32 bits. A peer's wider opaque can still be echoed, so only what no peer means
# as a number is refused.
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class CommandHead(msgspec.Struct, gc=False):
    """The fixed fields of a command, and its extFields as sent.

    `ext_fields` is undecoded JSON, so that a hot path decodes it straight into a typed header, or the
    dict that the binary form yields, or None if the peer sent none; in the most frequent requests it is
    the typed header already (request_head.py).
    """

    code: _Int
    language: _Int | str | None = None
    version: _Int = 0
    opaque: _Int = 0
    flag: _Int = 0
    remark: str | None = None
    ext_fields: SentFields = msgspec.field(default=None, name="extFields")

    @property
    def is_response(self) -> bool:
        """Whether this is the response to a request of ours, not a request."""
        return self.flag & 1 == 1

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no response."""
        return self.flag & 2 == 2

    @property
    def language_code(self) -> int:
        """The sender's language as a number: JAVA if missing, OTHER if unknown."""
        sent = self.language
        if sent is None:
            return LanguageCode.JAVA
        if isinstance(sent, str):
            return _LANGUAGES.get(sent, LanguageCode.OTHER)
        return sent if 0 <= sent <= 0xFF else LanguageCode.OTHER


_LANGUAGES = dict(LanguageCode.__members__)
