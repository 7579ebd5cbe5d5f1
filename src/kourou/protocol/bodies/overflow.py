"""The body of the response to GET_KOUROU_OVERFLOW: the overflow policies of a broker's topics, and what they
have done."""

from __future__ import annotations

import msgspec

from kourou.errors import ProtocolError


class OverflowCount(msgspec.Struct, frozen=True, rename="camel"):
    """How many messages of a topic a group did not get, ever: dropped, or put to its dead letters."""

    group: str
    dropped: int = 0
    dead_lettered: int = 0


class TopicOverflow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One topic on one broker. `policy` is empty where it has none any more. `share` is that of the limit
    which the slowest live group has used most of. Of its backlog, messages are always counted; bytes and age
    are None where they are not limited, so not measured."""

    topic: str
    policy: str = ""
    max_messages: int | None = None
    max_bytes: int | None = None
    max_age_ms: int | None = None
    share: float = 0.0
    slowest_group: str = ""
    messages: int = 0
    size_bytes: int | None = None
    age_ms: int | None = None
    over_since_ms: int | None = None
    rejected: int = 0
    problem: str = ""
    groups: list[OverflowCount] = []


class OverflowState(msgspec.Struct, frozen=True, rename="camel"):
    """All topics that have a policy, or of which messages were dropped."""

    topics: list[TopicOverflow]

    def encode(self) -> bytes:
        """The body."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: bytes) -> OverflowState:
        """What a body says; ProtocolError if it is malformed."""
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"state of overflow policies: {error}") from None
