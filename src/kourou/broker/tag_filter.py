"""Tag filters: the codes that a subscription selects, compared with those in the ConsumeQueue.

Codes are hashes: what they let through the client compares once more by text, and the set here
is made from the text, because not every client sends right codes.
"""

from __future__ import annotations

from functools import lru_cache

from kourou.errors import ProtocolError, RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.tags import parse_tag_expression, tags_code

TagCodes = frozenset[int] | None
"""None: every message is wanted."""

TAG = "TAG"
SQL92 = "SQL92"


@lru_cache(maxsize=4096)
def tag_codes(expression: str | None) -> TagCodes:
    """The codes of `TagA || TagB`; None when every message is wanted. ProtocolError: no tag in there."""
    tags = parse_tag_expression(expression)
    return frozenset(map(tags_code, tags)) if tags else None


def subscription_codes(expression: str | None, expression_type: str | None) -> TagCodes:
    """The same for what a client sent, whose mistakes are answered."""
    if expression_type not in (None, "", TAG):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )
    try:
        return tag_codes(expression)
    except ProtocolError as error:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from error
