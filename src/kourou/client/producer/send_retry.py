"""Whether a send that failed is tried again, and how its attempts read afterwards.

Java 5.x's rules: what the network does is tried again, and what a broker answers if its code says that
another broker may well answer otherwise. A message for a queue that its sender chose is not tried again.
Nothing here waits or sends.
"""

from __future__ import annotations

from typing import Final

from kourou.errors import (
    ConnectError,
    ConnectionLostError,
    NoRouteError,
    RemotingError,
    ResponseError,
    TooManyRequestsError,
)
from kourou.protocol.codes import ResponseCode

RETRY_CODES: Final = frozenset(
    int(code)
    for code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Answers after which another broker is asked (`retryResponseCodes`)."""

_CONTAINER_HINT: Final = (
    "that is the address the broker advertises; if clients cannot reach it (a container's address?), "
    "set brokerIP1 at the broker"
)


def is_retriable(error: Exception) -> bool:
    """Whether another broker, or another moment, may take the message."""
    if isinstance(error, ResponseError):
        return error.code in RETRY_CODES
    if isinstance(error, RemotingError):
        return error.retriable and not isinstance(error, TooManyRequestsError)
    return isinstance(error, NoRouteError)


def is_route_stale(error: Exception) -> bool:
    """Whether the broker may be gone, so that the name server is worth asking."""
    return isinstance(error, ConnectError | ConnectionLostError | NoRouteError)


def describe_attempt(broker_name: str, address: str, error: Exception) -> str:
    """One attempt, as a user reads it."""
    if isinstance(error, ResponseError):
        return f"broker {broker_name} at {address} answered code {error.code}: {error.remark}"
    hint = f" ({_CONTAINER_HINT})" if isinstance(error, ConnectError) else ""
    return f"broker {broker_name}: {error}{hint}"
