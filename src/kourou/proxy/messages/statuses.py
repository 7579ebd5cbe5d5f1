"""Statuses: a remoting response code, or an error, as a code of rocketmq.v2.

A call that fails is answered with gRPC's OK and one of these statuses. Clients retry most codes, and some for
ever: a request that cannot succeed must not get a code of 5xxxx.
"""

from __future__ import annotations

import logging
from typing import Final

from kourou.client.core.refusals import is_access_refusal
from kourou.errors import (
    AccessDeniedError,
    CallTimeoutError,
    KourouError,
    LimitError,
    NameRefusedError,
    NoRouteError,
    ResponseError,
    TooManyRequestsError,
)
from kourou.protocol.codes import ResponseCode
from kourou.proxy.messages.refusals import refusal_of_broker
from kourou.proxy.wire.rocketmq_v2 import Code, Status

_log = logging.getLogger(__name__)

# Codes that are not here are INTERNAL_SERVER_ERROR, as in Apache's proxy, which lacks the second part.
_CODES: Final[dict[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    # Clients must not repeat these.
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}


class StatusError(KourouError):
    """Ends a call with this status. The words are for the client's user."""

    def __init__(self, code: Code, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


def code_of_response(code: int) -> Code:
    """The code for a response of a broker or name server."""
    return _CODES.get(code, Code.INTERNAL_SERVER_ERROR)


def make_status(code: Code, words: str = "") -> Status:
    """A status; without words its message is the name of the code."""
    return Status(code=code, message=words or code.name)


def status_of_response(code: int, remark: str | None) -> Status:
    """The status for a response of a broker or name server."""
    if remark and is_access_refusal(code, remark):
        return make_status(Code.UNAUTHORIZED, refusal_of_broker(remark))
    return make_status(code_of_response(code), remark or f"remoting response code {code}")


def status_of(error: BaseException) -> Status:
    """The status that ends a call which failed with this error. What no peer can cause is logged."""
    match error:
        case StatusError():
            return make_status(error.code, error.words)
        case AccessDeniedError():
            return make_status(Code.UNAUTHORIZED, refusal_of_broker(error.remark))
        case LimitError():
            return make_status(Code.TOO_MANY_REQUESTS, error.remark)
        case ResponseError():
            return status_of_response(error.code, error.remark)
        case NoRouteError():
            return make_status(Code.TOPIC_NOT_FOUND, str(error))
        case NameRefusedError():
            return make_status(Code.BAD_REQUEST, str(error))
        case CallTimeoutError():
            return make_status(Code.PROXY_TIMEOUT, str(error))
        case TooManyRequestsError():
            return make_status(Code.TOO_MANY_REQUESTS, str(error))
        case KourouError():
            return make_status(Code.INTERNAL_SERVER_ERROR, str(error))
    _log.error("a gRPC call failed", exc_info=error)
    return make_status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
