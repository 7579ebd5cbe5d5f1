"""Headers of idempotent producers: opening one, and how far it is."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int64

__all__ = [
    "ForgetProducerRequestHeader",
    "ForgetProducerResponseHeader",
    "GetSequencesRequestHeader",
    "OpenProducerRequestHeader",
    "OpenProducerResponseHeader",
    "ProducerSnapshotRequestHeader",
    "ProducerSnapshotResponseHeader",
]


class OpenProducerRequestHeader(CommandHeader, kw_only=True):
    """OPEN_KOUROU_PRODUCER. With a name, programs that opened it before are fenced; without, the broker
    gives a new id. `kourou_allows_gaps`: the application numbers its messages itself. `kourou_nonce`: random
    digits that a repeat of the opening of a name has too; it gets the same answer, and fences no program."""

    producer_group: str
    kourou_name: str | None = None
    kourou_allows_gaps: bool = False
    kourou_nonce: str | None = None


class OpenProducerResponseHeader(CommandHeader, kw_only=True):
    """The id and the epoch that messages have to carry."""

    kourou_producer_id: str
    kourou_epoch: Int64


class GetSequencesRequestHeader(CommandHeader, kw_only=True):
    """GET_KOUROU_SEQUENCES: the last sequences of a producer in the queues of a topic."""

    kourou_producer_id: str
    topic: str


class ForgetProducerRequestHeader(CommandHeader, kw_only=True):
    """FORGET_KOUROU_PRODUCER: forget a named producer, and what it has sent."""

    kourou_name: str


class ForgetProducerResponseHeader(CommandHeader, kw_only=True):
    """`kourou_is_known`: whether there was one."""

    kourou_is_known: bool


class ProducerSnapshotRequestHeader(CommandHeader, kw_only=True):
    """GET_KOUROU_PRODUCER_SNAPSHOT, which slaves send: the first piece of a new snapshot; or with the id that
    came with that, the piece at `kourou_offset`."""

    kourou_snapshot_id: str | None = None
    kourou_offset: Int64 = 0


class ProducerSnapshotResponseHeader(CommandHeader, kw_only=True):
    """The body is a piece of the snapshot, which has `kourou_size` bytes. A master of an earlier version
    sends neither field: the body is all of it."""

    kourou_snapshot_id: str = ""
    kourou_size: Int64 = 0
