"""MemberLease: the lease of one member: it shows that the member is alive, and carries the master's key.

Its deadline is counted from when a renewal was sent, less a margin: etcd counts from when it arrived. A
renewal also looks at the keys: there are versions of etcd that confirm a lease whose keys are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kourou.broker.replication.reign import boottime_s
from kourou.failover.set_client import SetClient, Throne
from kourou.failover.set_state import MemberValue

_MAX_MARGIN_S: Final = 1.0


def deadline_of(sent_s: float, ttl_s: float) -> float:
    """Until when to rely on what was granted for `ttl_s` in the answer to a request."""
    return sent_s + ttl_s - min(_MAX_MARGIN_S, ttl_s / 4)


class MemberLease:
    """`lease_id` 0: there is none at the moment."""

    def __init__(
        self,
        client: SetClient,
        member: MemberValue,
        ttl_s: int,
        now_s: Callable[[], float] = boottime_s,
    ) -> None:
        self._client = client
        self._member = member
        self._ttl_s = ttl_s
        self._now_s = now_s
        self._lock = asyncio.Lock()
        self.lease_id = 0
        self.deadline_s = 0.0

    @property
    def period_s(self) -> float:
        """How often it is renewed."""
        return self._ttl_s / 3

    async def renew(self, throne: Throne | None, lost: Callable[[str], None]) -> bool:
        """Renew it, or get a new one; whether it holds the key of `throne`. `lost` is called with the reason
        as soon as that is known to be gone. EtcdUnavailableError, EtcdRefusedError."""
        async with self._lock:
            return await self._renew(throne, lost)

    async def _renew(self, throne: Throne | None, lost: Callable[[str], None]) -> bool:
        sent_s, is_held = self._now_s(), False
        etcd = self._client.etcd
        lease = await etcd.keep_alive(self.lease_id) if self.lease_id else None
        if lease is not None:
            held = await self._client.held_by(self._member.member_id)
            if held.member_lease_id != lease.lease_id:
                lease = None
            elif throne is not None:
                is_held = (held.master_created_revision, held.master_lease_id) == (
                    throne.created_revision,
                    lease.lease_id,
                )
                if not is_held:
                    lost("its key in etcd is gone")
        if lease is None:
            if throne is not None:
                lost("its lease in etcd has expired")
            self.lease_id, self.deadline_s = 0, 0.0
            sent_s = self._now_s()
            lease = await etcd.grant(self._ttl_s)
            await self._client.show_alive(self._member, lease.lease_id)
            self.lease_id = lease.lease_id
        self.deadline_s = deadline_of(sent_s, lease.ttl_s)
        return is_held

    async def end(self) -> None:
        """Give it back: its keys are gone at once, if etcd can be reached."""
        async with self._lock:
            lease_id, self.lease_id, self.deadline_s = self.lease_id, 0, 0.0
            if lease_id:
                await self._client.end_lease(lease_id)
