"""TransactionState: the outcome of a local transaction."""

from __future__ import annotations

import enum

from kourou.protocol.codes import MessageSysFlag


class TransactionState(enum.Enum):
    """The outcome that a broker gets: deliver the message, drop it, or check again later."""

    COMMIT = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value
    ROLLBACK = MessageSysFlag.TRANSACTION_ROLLBACK_TYPE.value
    UNKNOWN = 0
