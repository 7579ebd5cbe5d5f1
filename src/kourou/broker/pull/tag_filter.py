"""Tag filters: the codes that a subscription selects, compared with those in the ConsumeQueue.

Codes are hashes: what they let through the client compares once more by text, and the set here
is made from the text, because not every client sends right codes.

The text is a peer's: beyond MAX_EXPRESSION_CHARS it is refused before anything is made of it, and of
the longer ones few are remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kourou.errors import ProtocolError, RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.tags import parse_tag_expression, tags_code

TagCodes = frozenset[int] | None
"""None: every message is wanted."""

TAG = "TAG"
SQL92 = "SQL92"


MAX_EXPRESSION_CHARS: Final = 16 * 1024
"""Five hundred tags of thirty letters. To hash so much takes some milliseconds, in which nobody is served."""

_SHORT_CHARS: Final = 256


def tag_codes(expression: str | None) -> TagCodes:
    """The codes of `TagA || TagB`; None when every message is wanted. ProtocolError: no tag in there."""
    tags = parse_tag_expression(expression)
    return frozenset(map(tags_code, tags)) if tags else None


# Pulls ask, where what they get is not remembered (pull_targets.py). The set of a text with many tags takes
# 40 times its room: at worst 10 MB, and 16 MB.
_short_tag_codes: Final = lru_cache(maxsize=1024)(tag_codes)
_long_tag_codes: Final = lru_cache(maxsize=32)(tag_codes)


def subscription_codes(expression: str | None, expression_type: str | None) -> TagCodes:
    """The same for what a client sent, whose mistakes are answered."""
    if expression_type not in (None, "", TAG):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )
    size = 0 if expression is None else len(expression)
    if size > MAX_EXPRESSION_CHARS:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed: "
            f"the tag expression has {size} characters; write {MAX_EXPRESSION_CHARS} at most",
        )
    try:
        return _short_tag_codes(expression) if size <= _SHORT_CHARS else _long_tag_codes(expression)
    except ProtocolError as error:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from error
