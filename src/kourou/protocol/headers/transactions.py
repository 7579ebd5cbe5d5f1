"""Headers of transactional messages: their ends, and checks by the broker."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64

__all__ = [
    "CheckTransactionStateRequestHeader",
    "EndTransactionRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
]


class EndTransactionRequestHeader(CommandHeader, kw_only=True):
    """END_TRANSACTION. `commit_or_rollback` is a transaction type of MessageSysFlag, 0 = unknown."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(CommandHeader, kw_only=True):
    """CHECK_TRANSACTION_STATE, broker to producer; the half message is in the body."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE; `msg_id` is an offset id."""

    topic: str | None = None
    msg_id: str | None = None
