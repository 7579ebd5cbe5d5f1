"""PutStatus: the result of a put, and the text of a rejection.

Not here: the reasons (log_appender.py for the store, the broker for its own).
"""

from __future__ import annotations

import enum
from typing import Final, Self

from kourou.errors import StorageError
from kourou.protocol.codes import ResponseCode

_PROPERTIES_LIMIT: Final = "32KB"


class PutStatus(enum.Enum):
    """RocketMQ's words. `response_code` is what a sender gets, `remark` how RocketMQ says it."""

    response_code: int
    remark: str

    def __new__(cls, response_code: ResponseCode, remark: str = "") -> Self:
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)  # not the code: several words share one
        member.response_code = int(response_code)
        member.remark = remark
        return member

    PUT_OK = (ResponseCode.SUCCESS,)
    FLUSH_DISK_TIMEOUT = (ResponseCode.FLUSH_DISK_TIMEOUT,)
    FLUSH_SLAVE_TIMEOUT = (ResponseCode.FLUSH_SLAVE_TIMEOUT,)
    SLAVE_NOT_AVAILABLE = (ResponseCode.SLAVE_NOT_AVAILABLE,)
    IN_SYNC_REPLICAS_NOT_ENOUGH = (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    SERVICE_NOT_AVAILABLE = (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: "
        "the broker's disk is full, messages are put to the slave, message store has been shut down, etc.",
    )
    CREATE_MAPPED_FILE_FAILED = (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    )
    MESSAGE_ILLEGAL = (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal")
    PROPERTIES_SIZE_EXCEEDED = (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal")
    OS_PAGE_CACHE_BUSY = (
        ResponseCode.SYSTEM_BUSY,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    )
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = (
        ResponseCode.SYSTEM_ERROR,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue "
        "num exceed maxLmqConsumeQueueNum config num, default limit 2w.",
    )
    WHEEL_TIMER_MSG_ILLEGAL = (ResponseCode.MESSAGE_ILLEGAL, "the delay of the message is too long")
    WHEEL_TIMER_FLOW_CONTROL = (ResponseCode.SYSTEM_ERROR, "too many messages are due at one time")
    WHEEL_TIMER_NOT_ENABLE = (ResponseCode.SYSTEM_ERROR, "timer messages are not enabled")
    UNKNOWN_ERROR = (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR")

    @property
    def is_stored(self) -> bool:
        """True when the message is in the log, if not everywhere it should be."""
        return self is PutStatus.PUT_OK or self in _STORED

    @property
    def is_durable(self) -> bool:
        """True when it is as durable as a send that succeeds, and all that was put before it is decided."""
        return self is PutStatus.PUT_OK or self is PutStatus.SLAVE_NOT_AVAILABLE


_STORED: Final = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)


def illegal_remark(max_message_bytes: int, details: str) -> str:
    """Why a message is refused for its size. RocketMQ's words come first: tools and people look for them."""
    return (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {max_message_bytes}B, msg properties length limit {_PROPERTIES_LIMIT}. "
        f"({details})"
    )


class PutRefusedError(StorageError):
    """A put that was not even tried; `status` says which rule, the message says why."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.response_code = status.response_code
