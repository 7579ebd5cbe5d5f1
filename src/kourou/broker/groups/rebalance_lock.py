"""RebalanceLockManager: which client of a group has a queue for itself, for orderly consumption.

A lock is free again when its owner has not renewed it for a minute; it outlives the connection, for
the owner may still be at work on the queue. Orderly consumers request locks in batches (41) and release them
(42). There is no `lockInStrictMode`, in which a master consults its slaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kourou.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.transport.request import Processor, Request

_log = logging.getLogger(__name__)

LOCK_MAX_LIVE_MS: Final = 60_000
"""Three times the interval at which clients renew."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    last_update_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_update_ms > LOCK_MAX_LIVE_MS


class RebalanceLockManager:
    """Locks by group and queue."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def try_lock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str) -> set[MessageQueue]:
        """Lock or renew; the queues that the client now has."""
        now_ms = self._now_ms()
        locks = self._groups.setdefault(group, {})
        return {mq for mq in mqs if self._try_lock(locks, group, mq, client_id, now_ms)}

    def unlock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str) -> None:
        """Give queues back; those of another client stay locked."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for mq in mqs:
            lock = locks.get(mq)
            if lock is None:
                continue
            if lock.client_id != client_id:
                _log.warning(
                    "group %s: %s unlocks %s/%d, which %s holds",
                    *(group, client_id, mq.topic, mq.queue_id, lock.client_id),
                )
                continue
            del locks[mq]
        if not locks:
            del self._groups[group]

    def is_locked(self, group: str, mq: MessageQueue, client_id: str) -> bool:
        """Whether this client has the queue."""
        return self.owner_of(group, mq) == client_id

    def owner_of(self, group: str, mq: MessageQueue) -> str | None:
        """The client that has the queue, None when it is free."""
        lock = self._groups.get(group, {}).get(mq)
        return None if lock is None or lock.is_expired(self._now_ms()) else lock.client_id

    def is_lock_all_expired(self, group: str) -> bool:
        """Whether the group holds no queue: it does not consume in order."""
        now_ms = self._now_ms()
        return all(lock.is_expired(now_ms) for lock in self._groups.get(group, {}).values())

    def _try_lock(
        self, locks: dict[MessageQueue, _Lock], group: str, mq: MessageQueue, client_id: str, now_ms: int
    ) -> bool:
        lock = locks.get(mq)
        if lock is not None and lock.client_id != client_id:
            if not lock.is_expired(now_ms):
                return False
            _log.info(
                "group %s: %s takes %s/%d over, %s let it expire",
                *(group, client_id, mq.topic, mq.queue_id, lock.client_id),
            )
        locks[mq] = _Lock(client_id, now_ms)
        return True

    # -- requests --------------------------------------------------------------------------------

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock_batch_mq,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch_mq,
        }

    def lock_batch_mq(self, request: Request) -> None:
        """LOCK_BATCH_MQ: the queues that the client has now; others are missing in the response."""
        asked = decode_body(request.body, LockBatchRequestBody)
        locked = self.try_lock_batch(asked.consumer_group, asked.mq_set, asked.client_id)
        request.reply(body=encode_body(LockBatchResponseBody(sorted(locked))))

    def unlock_batch_mq(self, request: Request) -> None:
        """UNLOCK_BATCH_MQ: the client does not need these queues any more."""
        asked = decode_body(request.body, UnlockBatchRequestBody)
        self.unlock_batch(asked.consumer_group, asked.mq_set, asked.client_id)
        request.reply()
