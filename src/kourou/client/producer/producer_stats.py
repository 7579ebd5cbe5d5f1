"""The counters of a producer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ProducerCounters:
    """Counters since the start; messages of batches count one by one."""

    sent: int = 0
    sent_bytes: int = 0
    send_s: float = 0.0
    failed: int = 0
    retried: int = 0
    oneway: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    transactions_unknown: int = 0
    transaction_checks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStats:
    """The counters of a producer since its start.

    `send_s` is the time of acknowledged sends, retries included, added up; a batch is one send.
    `sent` and `failed` count messages, `retried` attempts after the first, `oneway` messages without a
    response. `in_flight` is the current number. A transaction is counted when its end is sent;
    `transaction_checks` counts responses to checks.
    """

    sent: int
    sent_bytes: int
    send_s: float
    failed: int
    retried: int
    oneway: int
    in_flight: int
    in_flight_bytes: int
    transactions_committed: int
    transactions_rolled_back: int
    transactions_unknown: int
    transaction_checks: int
