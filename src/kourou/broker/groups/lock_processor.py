"""Locks on queues, which orderly consumers ask for in batches (41) and give back (42).

`lockInStrictMode`, in which a master asks its slaves too, is not there: a broker decides alone.
Not here: the locks (rebalance_lock.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.groups.rebalance_lock import RebalanceLockManager


def lock_processors(locks: RebalanceLockManager) -> dict[int, Processor]:
    """Request code to function."""

    def lock_batch(request: Request) -> None:
        """41: the queues that the client has now; those it does not get are missing in the answer."""
        asked = decode_body(request.body, LockBatchRequestBody)
        locked = locks.try_lock_batch(asked.consumer_group, asked.mq_set, asked.client_id)
        request.reply(body=encode_body(LockBatchResponseBody(sorted(locked))))

    def unlock_batch(request: Request) -> None:
        """42: the client does not need these queues any more."""
        asked = decode_body(request.body, UnlockBatchRequestBody)
        locks.unlock_batch(asked.consumer_group, asked.mq_set, asked.client_id)
        request.reply()

    return {RequestCode.LOCK_BATCH_MQ: lock_batch, RequestCode.UNLOCK_BATCH_MQ: unlock_batch}
