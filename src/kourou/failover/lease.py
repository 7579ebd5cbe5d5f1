"""MemberLease: the lease of one member: it shows that the member is alive, and carries the master's key.

Its deadline is counted from when a renewal was sent, less a margin: etcd counts from when it arrived. A
renewal also looks at the keys: there are versions of etcd that confirm a lease whose keys are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kourou.broker.replication.reign import Reign, boottime_s
from kourou.failover.set_client import SetClient, Throne
from kourou.failover.set_state import MemberValue

_MAX_MARGIN_S: Final = 1.0


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

    async def renew(self, reign: Reign | None, throne: Throne | None) -> None:
        """Renew it, or get a new one; a reign is prolonged, or ends if its key is gone. EtcdUnavailableError,
        EtcdRefusedError."""
        async with self._lock:
            await self._renew(reign, throne)

    async def _renew(self, reign: Reign | None, throne: Throne | None) -> None:
        sent_s = self._now_s()
        etcd, held = self._client.etcd, None
        lease = await etcd.keep_alive(self.lease_id) if self.lease_id else None
        if lease is not None:
            held = await self._client.held_by(self._member.member_id)
            if held.member_lease_id != lease.lease_id:
                lease = None
        if lease is None:
            if reign is not None and self.lease_id:
                reign.end("its lease in etcd has expired")
            self.lease_id, self.deadline_s = 0, 0.0
            sent_s = self._now_s()
            lease = await etcd.grant(self._ttl_s)
            await self._client.show_alive(self._member, lease.lease_id)
            self.lease_id = lease.lease_id
        elif reign is not None and throne is not None and held is not None:
            if held.master_created_revision != throne.created_revision:
                reign.end("its key in etcd is gone")
        self.deadline_s = sent_s + lease.ttl_s - min(_MAX_MARGIN_S, lease.ttl_s / 4)
        if reign is not None:
            reign.renewed(self.deadline_s)

    async def end(self) -> None:
        """Give it back: its keys are gone at once, if etcd can be reached."""
        async with self._lock:
            lease_id, self.lease_id, self.deadline_s = self.lease_id, 0, 0.0
            if lease_id:
                await self._client.end_lease(lease_id)
