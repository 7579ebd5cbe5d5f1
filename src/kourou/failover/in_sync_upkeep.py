"""InSyncUpkeep: the in-sync set of one reign, as etcd has it and as the master wants it.

The set is looked at every few milliseconds while the reign lasts. A change is proposed to the reign first, so
that acknowledgements wait for the members of both sets until etcd has decided.

Not here: which members belong to the set (in_sync.py), what acknowledgements wait for (reign.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kourou.broker.replication.reign import Reign
from kourou.config.broker import SYNC_MASTER, BrokerConfig
from kourou.errors import EtcdUnavailableError
from kourou.failover.in_sync import LogSeen, SlaveSeen, lacks_beginning, next_in_sync
from kourou.failover.set_client import SetClient, Throne
from kourou.failover.set_state import sorted_members

if TYPE_CHECKING:
    from kourou.broker.controller import BrokerController
    from kourou.broker.replication.replica_link import ReplicaLink

_log = logging.getLogger(__name__)

_JOIN_S: Final = 0.005
_OLD_S: Final = 0.5  # a look so long ago says nothing of what was acknowledged since
_STEP_S: Final = 0.05  # between two looks at the slaves, while one of them may join or leave


class InSyncUpkeep:
    """`broker` returns the broker once it serves as master, `alive` the members that are alive."""

    def __init__(
        self,
        client: SetClient,
        reign: Reign,
        throne: Throne,
        config: BrokerConfig,
        *,
        min_copies: int,
        broker: Callable[[], BrokerController | None],
        alive: Callable[[], Container[int]],
    ) -> None:
        self._client = client
        self._config = config
        self._min_copies = min_copies
        self._broker = broker
        self._alive = alive
        self._is_unsettled = False  # whether the last change may have been done
        self._gone_since: dict[int, float] = {}
        self._said: dict[int, int] = {}  # of members that cannot join, where their logs begin
        self._end_before = 0
        self._looked_at = 0.0
        self.reign = reign
        self.throne = throne
        """The master's key, and the set as etcd has it."""

    def links(self) -> dict[int, ReplicaLink]:
        """The members that follow this master."""
        broker = self._broker()
        return broker.running.master.server.member_links() if broker is not None else {}

    async def step(self) -> float:
        """Look at the slaves and change the set if it is time; when the next step is due.
        EtcdUnavailableError, EtcdRefusedError."""
        reign = self.reign
        if self._is_unsettled:
            await self.settle()
            if reign.rests_on_promises or not reign.is_good():
                return _JOIN_S
        wanted = self._wanted()
        if wanted != reign.in_sync:
            # From now on those that join are waited for; the set is written when they have what was
            # acknowledged before.
            reign.propose(wanted)
            if not self._have_acknowledged(wanted - reign.in_sync):
                return _JOIN_S
            await self._change(wanted)
        elif reign.proposed is not None:
            reign.committed(reign.in_sync)
        return min(_STEP_S, reign.left_s)

    async def settle(self) -> None:
        """Write the set that etcd has once more after a change of unknown outcome: if that is still under
        way, it fails from then on."""
        found = await self._client.read_throne(self.throne)
        if found is None:
            self.reign.key_lost("its key in etcd is gone")
            return
        in_sync = found.in_sync
        changed = await self._client.change_in_sync(found, in_sync.members, phy_offset=in_sync.phy_offset)
        if changed is not None:  # else the late change was done now, or the key is gone: look again
            self.hold(changed)

    def hold(self, throne: Throne) -> None:
        """What etcd has now."""
        reign = self.reign
        self._is_unsettled = False
        if throne.in_sync.members != sorted_members(reign.in_sync):
            _log.info("in sync: %s (before: %s)", names(throne.in_sync.members), names(reign.in_sync))
        self.throne = throne
        reign.committed(throne.in_sync.members)
        if (broker := self._broker()) is not None:
            broker.running.master.in_sync_changed()

    def withdraw(self) -> None:
        """Give up a change that was proposed and not yet written."""
        if not self._is_unsettled and self.reign.proposed is not None:
            self.reign.committed(self.reign.in_sync)

    # -- the set as it should be -----------------------------------------------------------------------

    def _wanted(self) -> frozenset[int]:
        broker, reign = self._broker(), self.reign
        if broker is None:
            return reign.in_sync
        now_s = asyncio.get_running_loop().time()
        alive, log = self._alive(), broker.services.store.log
        slaves = {
            member: SlaveSeen(
                ack_phy_offset=link.ack_phy_offset,
                behind_s=link.lag.seconds(now_s),
                min_phy_offset=link.slave.min_phy_offset if link.slave else 0,
            )
            for member, link in self.links().items()
            if member in alive or member in reign.in_sync
        }
        for member in reign.in_sync:
            if member in slaves or member == reign.member_id:
                self._gone_since.pop(member, None)
            else:
                self._gone_since.setdefault(member, now_s)
        if now_s - self._looked_at > _OLD_S:
            self._end_before = log.max_phy_offset
        acknowledged = max(reign.begin_phy_offset, self._end_before)
        self._end_before, self._looked_at = log.max_phy_offset, now_s
        seen = LogSeen(min_phy_offset=log.min_phy_offset, acknowledged_phy_offset=acknowledged)
        self._report_unable_to_join(slaves, seen)
        return next_in_sync(
            reign.in_sync,
            reign.member_id,
            slaves,
            seen,
            gone_s={member: now_s - since for member, since in self._gone_since.items()},
            max_behind_s=self._config.ha_max_time_slave_not_catchup / 1000,
            min_copies=self._min_copies,
        )

    def _report_unable_to_join(self, slaves: Mapping[int, SlaveSeen], log: LogSeen) -> None:
        """Log it once for each member and beginning."""
        for member, slave in slaves.items():
            if member in self.reign.in_sync or not lacks_beginning(slave, log):
                continue
            if self._said.get(member) != slave.min_phy_offset:
                self._said[member] = slave.min_phy_offset
                _log.warning(
                    "member %d cannot join the in-sync set: its log begins at %d, the master's at %d; give "
                    "it an empty store, and it copies everything",
                    member,
                    slave.min_phy_offset,
                    log.min_phy_offset,
                )

    def _have_acknowledged(self, members: Iterable[int]) -> bool:
        if self._config.broker_role != SYNC_MASTER:
            return True
        links, confirmed = self.links(), self.reign.confirmed_phy_offset
        return all(each in links and links[each].ack_phy_offset >= confirmed for each in members)

    # -- writing it ------------------------------------------------------------------------------------

    async def _change(self, wanted: frozenset[int]) -> None:
        """Write another set. Until etcd has it, acknowledgements wait for the members of both."""
        reign, before, links = self.reign, self.reign.in_sync, self.links()
        acks = (links[each].ack_phy_offset for each in wanted if each in links)
        phy_offset = min([reign.confirmed_phy_offset, *acks])
        if any(each not in links for each in wanted - {reign.member_id}):
            phy_offset = min(phy_offset, self.throne.in_sync.phy_offset)
        try:
            throne = await self._client.change_in_sync(
                self.throne, sorted_members(wanted), phy_offset=phy_offset
            )
        except EtcdUnavailableError as error:
            self._is_unsettled = error.may_be_done
            if not error.may_be_done:
                reign.committed(before)
            raise
        if throne is None:
            self._is_unsettled = True  # the key is gone, or etcd has another set than was known here
        else:
            self.hold(throne)


def names(members: Iterable[int]) -> str:
    """Members as they are shown."""
    return ", ".join(map(str, sorted(members)))
