"""The body of GET_KOUROU_GROUP_LAGS: the progress of every group in every topic of a broker, in one row each.

Rows are arrays, since there may be thousands:

    {"ageMs": 1200, "rows": [[group, topic, lag, inflight, end, since_ms], …]}
"""

from __future__ import annotations

import msgspec

from kourou.errors import ProtocolError


class GroupLagRow(msgspec.Struct, array_like=True, frozen=True):
    """One group in one topic, over all queues of the broker."""

    group: str
    topic: str
    lag: int
    """Messages not yet consumed."""
    inflight: int
    """Messages delivered and not yet consumed."""
    end: int
    """The sum of the queues' end offsets."""
    since_ms: int
    """The store time of the oldest message that is not consumed; 0: there is none, or it is not known."""


class GroupLags(msgspec.Struct, frozen=True, rename="camel"):
    """All rows of a broker, and how old they are."""

    age_ms: int
    rows: list[GroupLagRow]

    def encode(self) -> bytes:
        """The body."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: bytes) -> GroupLags:
        """The rows of a body; ProtocolError if it has none."""
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"group lags: {error}") from None
