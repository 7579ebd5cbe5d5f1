"""Headers of atomic publishes: staging parts, deciding, and requests between brokers."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64

__all__ = [
    "AtomicOutcomeResponseHeader",
    "DecideAtomicRequestHeader",
    "EndAtomicRequestHeader",
    "EndAtomicResponseHeader",
    "ForgetAtomicRequestHeader",
    "ForgetAtomicResponseHeader",
    "GetAtomicCoordinatorRequestHeader",
    "GetAtomicCoordinatorResponseHeader",
    "GetSinkRequestHeader",
    "GetSinkResponseHeader",
    "QueryAtomicRequestHeader",
    "StageAtomicRequestHeader",
]


class StageAtomicRequestHeader(CommandHeader, kw_only=True):
    """STAGE_KOUROU_ATOMIC: keep a part until its publish is decided; the body is `encode_groups`. Without a
    decision `kourou_timeout_ms` after the broker has stored it, the coordinator rolls the publish back.
    `default_topic` and its queues: as in a send, for a topic that does not exist yet."""

    producer_group: str
    kourou_atomic_id: str
    kourou_part: Int64
    kourou_coordinator: str
    kourou_timeout_ms: Int64
    default_topic: str
    default_topic_queue_nums: Int32


class DecideAtomicRequestHeader(CommandHeader, kw_only=True):
    """DECIDE_KOUROU_ATOMIC, to the coordinator; the body says which parts of which brokers
    (`encode_participants`).

    With a sink id, a commit also records the pair (query id, batch id) of that sink, and does nothing if the
    sink has that batch already. `kourou_replace_query`: the sink has a new query from now on."""

    kourou_atomic_id: str
    kourou_commit: bool
    kourou_sink_id: str | None = None
    kourou_query_id: str | None = None
    kourou_batch_id: Int64 | None = None
    kourou_replace_query: bool = False


class AtomicOutcomeResponseHeader(CommandHeader, kw_only=True):
    """Response to DECIDE_KOUROU_ATOMIC and QUERY_KOUROU_ATOMIC: an `Outcome`. For a commit that is queried,
    the body has the parts of the broker that sent the request."""

    kourou_outcome: str


class EndAtomicRequestHeader(CommandHeader, kw_only=True):
    """END_KOUROU_ATOMIC, from the coordinator to a broker that has parts: publish those of the body, drop
    the others. Answered when that is durable."""

    kourou_atomic_id: str
    kourou_commit: bool


class EndAtomicResponseHeader(CommandHeader, kw_only=True):
    """`kourou_is_known` false: the broker has no part of this publish, or has none any more."""

    kourou_is_known: bool


class QueryAtomicRequestHeader(CommandHeader, kw_only=True):
    """QUERY_KOUROU_ATOMIC, from a broker whose parts have had no decision in time, to the coordinator. An
    undecided publish is rolled back."""

    kourou_atomic_id: str
    kourou_broker_name: str


class ForgetAtomicRequestHeader(CommandHeader, kw_only=True):
    """FORGET_KOUROU_ATOMIC: decisions of this coordinator wait no longer for a broker that is gone."""

    kourou_broker_name: str


class ForgetAtomicResponseHeader(CommandHeader, kw_only=True):
    """How many decisions have waited for it."""

    kourou_decisions: Int32


class GetAtomicCoordinatorRequestHeader(CommandHeader, kw_only=True):
    """GET_KOUROU_ATOMIC_COORDINATOR: which broker coordinates the publishes of a named producer.
    `kourou_coordinator`: it is this one from now on, unless the broker knows one already."""

    kourou_name: str
    kourou_coordinator: str | None = None


class GetAtomicCoordinatorResponseHeader(CommandHeader, kw_only=True):
    """Absent: this broker does not know."""

    kourou_coordinator: str | None = None


class GetSinkRequestHeader(CommandHeader, kw_only=True):
    """GET_KOUROU_SINK: the last batch that a sink has committed at this coordinator."""

    kourou_sink_id: str


class GetSinkResponseHeader(CommandHeader, kw_only=True):
    """Both absent: none."""

    kourou_query_id: str | None = None
    kourou_batch_id: Int64 | None = None
