"""Headers of idempotent producers: opening one, and how far it is."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int64

__all__ = [
    "GetSequencesRequestHeader",
    "OpenProducerRequestHeader",
    "OpenProducerResponseHeader",
    "ProducerSnapshotResponseHeader",
]


class OpenProducerRequestHeader(CommandHeader, kw_only=True):
    """OPEN_KOUROU_PRODUCER. With a name, programs that opened it before are fenced; without, the broker
    gives a new id. `kourou_allows_gaps`: the application numbers its messages itself."""

    producer_group: str
    kourou_name: str | None = None
    kourou_allows_gaps: bool = False


class OpenProducerResponseHeader(CommandHeader, kw_only=True):
    """The id and the epoch that messages have to carry."""

    kourou_producer_id: str
    kourou_epoch: Int64


class GetSequencesRequestHeader(CommandHeader, kw_only=True):
    """GET_KOUROU_SEQUENCES: the last sequences of a producer in the queues of a topic."""

    kourou_producer_id: str
    topic: str


class ProducerSnapshotResponseHeader(CommandHeader, kw_only=True):
    """Response to GET_KOUROU_PRODUCER_SNAPSHOT, which slaves send: the body is a snapshot that covers the log
    up to here."""

    kourou_phy_offset: Int64
