"""A broker set without etcd: two real brokers, and a control that changes their roles as a test says.

Member 1 begins as master, member 2 as its slave. A handover stops both and starts the other as master, with
the same port and store, as members of a set do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from kourou.config import BrokerConfig
from kourou.embed import Broker
from kourou.etcd.client import MemberStatus
from kourou.failover.requests import FailoverRequests, failover_keys
from kourou.failover.set_state import SetState
from kourou.protocol.headers.controller import PromiseRequestHeader
from kourou.standalone.following import wait_followed
from kourou.testing.cluster import Cluster, broker_config, cluster
from kourou.transport.tasks import TaskOwner
from tests.unit.failover.set_values import set_state

ETCD = [MemberStatus(f"127.0.0.1:{port}", version="3.6.14", has_leader=True) for port in (2379, 2380, 2381)]


@dataclass
class BrokerSet:
    """The members by their numbers, and what etcd would say about them."""

    running: Cluster
    tasks: TaskOwner
    state: SetState = field(default_factory=set_state)
    brokers: dict[int, Broker] = field(default_factory=dict)
    handovers: list[int | None] = field(default_factory=list)
    is_stuck: bool = False
    """Whether handovers are accepted but never done."""

    async def start(self, member_id: int, config: BrokerConfig) -> Broker:
        control = _Control(self, member_id)
        requests = FailoverRequests(
            control, cluster="DefaultCluster", broker_name="broker-a", tasks=self.tasks
        )
        broker = Broker(config, handlers=[requests], runtime_keys=partial(failover_keys, control))
        await broker.start()
        self.brokers[member_id] = broker
        return broker

    def address(self, member_id: int) -> str:
        return self.brokers[member_id].address

    def choose(self, master: int | None = 1, *, epoch: int = 7, in_sync: tuple[int, ...] = (1, 2)) -> None:
        """What etcd holds from now on; members that run are alive."""
        addresses = {each: broker.address for each, broker in self.brokers.items()}
        self.state = set_state(
            master=master,
            epoch=epoch,
            in_sync=in_sync,
            alive=sorted(addresses),
            last_member=2,
            addresses=addresses,
        )

    async def change_roles(self, new_master: int) -> None:
        """Stop all members, and start one of them as master."""
        config = self.brokers[new_master].config
        await self.stop()
        self.brokers.clear()
        await self.start(new_master, replace(config, broker_id=0, broker_role="ASYNC_MASTER"))
        self.choose(new_master, epoch=self.state.epoch + 1, in_sync=(new_master,))

    async def stop(self) -> None:
        for broker in reversed(self.brokers.values()):
            await broker.stop()


@dataclass(frozen=True)
class _Control:
    """FailoverControl of one member."""

    of: BrokerSet
    member_id: int
    min_in_sync: int = 2

    @property
    def state(self) -> SetState:
        return self.of.state

    @property
    def etcd_members(self) -> list[MemberStatus]:
        return ETCD

    @property
    def is_master(self) -> bool:
        master = self.state.master
        return master is not None and master.member_id == self.member_id

    def promise(self, header: PromiseRequestHeader) -> int:
        raise NotImplementedError

    async def hand_over(self, target: int | None) -> int:
        self.of.handovers.append(target)
        chosen = target or next(each for each in self.state.members if each != self.member_id)
        if not self.of.is_stuck:
            self.of.tasks.start(self.of.change_roles(chosen), "handover")
        return chosen


@asynccontextmanager
async def broker_set(folder: Path) -> AsyncIterator[BrokerSet]:
    """A set of two members in its seventh reign, both in sync."""
    async with cluster(folder, brokers=0) as running:
        tasks = TaskOwner("set")
        members = BrokerSet(running, tasks)
        try:
            first = await members.start(1, broker_config(folder, 0, running.namesrv_addr))
            await members.start(2, broker_config(folder, 0, running.namesrv_addr, broker_id=2))
            assert not await wait_followed([first.address], 1, timeout_s=30)
            members.choose()
            yield members
        finally:
            await tasks.stop()
            await members.stop()
