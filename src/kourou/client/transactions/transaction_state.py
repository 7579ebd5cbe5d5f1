"""TransactionState: what became of a local transaction."""

from __future__ import annotations

import enum

from kourou.protocol.codes import MessageSysFlag


class TransactionState(enum.Enum):
    """What a broker is told: deliver the message, drop it, or ask again later."""

    COMMIT = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value
    ROLLBACK = MessageSysFlag.TRANSACTION_ROLLBACK_TYPE.value
    UNKNOWN = 0
