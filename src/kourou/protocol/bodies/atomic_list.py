"""The body of the response to LIST_KOUROU_ATOMIC: the atomic publishes that a broker knows of."""

from __future__ import annotations

import enum

import msgspec

from kourou.errors import ProtocolError


class AtomicState(enum.StrEnum):
    """What a broker waits for, or what it has noticed."""

    UNDECIDED = "undecided"
    """It has parts, and no decision."""
    COMMITTED = "committed"
    """It publishes its parts, or tries to."""
    DECIDED = "decided"
    """It is the coordinator: `waits_for` have not confirmed the decision yet."""
    ABANDONED = "abandoned"
    """It was rolled back since the program did not decide in time. Listed until the broker stops."""
    INCOMPLETE = "incomplete"
    """It is committed, and some messages could not be published: `problem`. Listed until the broker stops."""


class AtomicEntry(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One publish, as one broker knows it."""

    atomic_id: str
    state: AtomicState
    coordinator: str
    age_ms: int
    producer_group: str = ""
    topics: list[str] = []
    parts: int = 0
    messages: int = 0
    size_bytes: int = 0
    waits_for: list[str] = []
    problem: str = ""


class AtomicList(msgspec.Struct, frozen=True, rename="camel"):
    """All of one broker."""

    publishes: list[AtomicEntry]

    def encode(self) -> bytes:
        """The body."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: bytes) -> AtomicList:
        """What a body says; ProtocolError if it is malformed."""
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"list of atomic publishes: {error}") from None
