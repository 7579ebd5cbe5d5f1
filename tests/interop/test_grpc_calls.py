"""Single calls, which no official client would send, at our proxy and at Apache's: the same answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.interop.kit.grpc.calls import CALLS
from tests.interop.kit.grpc.fixtures import GrpcClients
from tests.interop.kit.grpc.scenarios import run
from tests.interop.kit.grpc.sides import APACHE, KOUROU, GrpcSide

pytestmark = pytest.mark.interop

_HANDLE = "INVALID_RECEIPT_HANDLE"
DIFFERENCES: Final[dict[str, dict[str, Any]]] = {
    "sends": {
        # Clients raise an error where the entries are not as many as the messages.
        "two messages": ("OK", ["OK", "OK"]),
        "unknown topic": ("TOPIC_NOT_FOUND", []),
    },
    "receipts": {
        # Push consumers repeat what ends with INTERNAL_SERVER_ERROR every second, for ever.
        "ack of two, one bad": ("MULTIPLE_RESULTS", ["OK", _HANDLE]),
        "ack of no handle": (_HANDLE, [_HANDLE]),
        "ack of an empty handle": (_HANDLE, [_HANDLE]),
        "ack without entries": ("BAD_REQUEST", []),
        "ack of an unknown topic": _HANDLE,
        "change of no handle": (_HANDLE, False),
        # The second change would make the first one's handle worthless.
        "change of the handle before": (_HANDLE, False),
        "forward of no handle": _HANDLE,
        # The caller is wrong, not the server, and it is not empty either.
        "no messages wanted": "BAD_REQUEST",
        "bad SQL": "ILLEGAL_FILTER_EXPRESSION",
        "unknown topic": "TOPIC_NOT_FOUND",
        "unknown broker": "INTERNAL_SERVER_ERROR",
    },
    "ends": {
        # Apache's forgets a transaction by an end without a resolution.
        "end": "OK",
        "recall without handle": "BAD_REQUEST",
        "recall of no handle": "BAD_REQUEST",
    },
    "settings": {
        # It reads the rules of a group from the brokers of its topics.
        "settings: unknown topic": "gRPC INVALID_ARGUMENT",
        "settings: bad topic": "gRPC INVALID_ARGUMENT",
        "settings without client id": "gRPC INVALID_ARGUMENT",
        # What is gone already may go.
        "termination again": "OK",
        "termination without settings": "OK",
    },
}
"""What ours answers where that is not what Apache's does, and why."""


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_answered_as_by_apaches_proxy(
    grpc_sides: dict[str, GrpcSide], grpc_clients: GrpcClients, name: str
) -> None:
    client = grpc_clients["python"]
    with ThreadPoolExecutor() as threads:
        running = {
            side: threads.submit(run, CALLS[name], client, grpc_sides[side]) for side in (APACHE, KOUROU)
        }
    theirs, ours = running[APACHE].result(), running[KOUROU].result()
    assert ours == {**theirs, **DIFFERENCES.get(name, {})}
