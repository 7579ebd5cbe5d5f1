"""Nemesis: faults of a broker set, by a plan that a seed or its printed form gives.

    plan = make_plan(seed=7, duration_s=100, lease_s=2, kinds=kinds_for(brokers))
    print(plan)                      # Plan.parse(text) is the same plan
    await Nemesis(brokers, note=history_line).run(plan)

Which member is hit is decided when the fault begins: the master of that moment, or a slave by `pick`. Members
that a fault ends are started again at its end. Several faults may be at work at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kourou.errors import KourouError
from kourou.etcd import EtcdClient, watch
from kourou.failover.set_state import SetState
from tests.failover.network import CLIENTS, Cut
from tests.failover.set_kit import NAMESRV, BrokerNode, BrokerSet
from tests.integration.etcd.etcd_kit import Member as EtcdMember

_TWO_AT_ONCE: Final = 0.3
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Step:
    """One fault: when it begins, for how long it lasts, and which of several possible targets it hits."""

    at_s: float
    kind: str
    lasts_s: float
    pick: int

    def __str__(self) -> str:
        return f"{self.at_s:.2f} {self.kind} {self.lasts_s:.2f} {self.pick}"

    @classmethod
    def parse(cls, line: str) -> Step:
        """A step as it is printed."""
        at_s, kind, lasts_s, pick = line.split()
        if kind not in KINDS:
            raise ValueError(f"{line!r}: there is no fault {kind!r}; there are {', '.join(KINDS)}")
        return cls(float(at_s), kind, float(lasts_s), int(pick))


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they begin."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    @classmethod
    def parse(cls, text: str) -> Plan:
        """A plan as it is printed."""
        return cls(tuple(map(Step.parse, text.strip().splitlines())))


class NoTargetError(Exception):
    """There is nothing that a fault could hit now, no master for example."""


Inject = Callable[["Nemesis", Step], AbstractAsyncContextManager[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """How to inject a fault: a context in which it is at work. It lasts between `least` and `most` leases."""

    inject: Inject
    least: float
    most: float
    needs_disks: bool = False


def make_plan(
    *, seed: int, duration_s: float, lease_s: float, kinds: Sequence[str], first: Sequence[str] = ()
) -> Plan:
    """Faults, one or two at once, each followed by time to recover. `first` come first, in this order; behind
    them no kind comes twice before all others came once."""
    chance = random.Random(seed)
    deck = list(reversed(first))
    steps: list[Step] = []
    at_s = 1.0
    while True:
        count = 2 if chance.random() < _TWO_AT_ONCE else 1
        found = []
        for _ in range(count):
            deck = deck or chance.sample(kinds, len(kinds))
            name = deck.pop()
            kind = KINDS[name]
            lasts_s = chance.uniform(kind.least, kind.most) * lease_s
            begin_s = at_s + (chance.uniform(0, lease_s) if found else 0.0)
            found.append(Step(round(begin_s, 2), name, round(lasts_s, 2), chance.randrange(100)))
        end_s = max(each.at_s + each.lasts_s for each in found)
        if end_s > duration_s:
            return Plan(tuple(sorted(steps, key=lambda step: step.at_s)))
        steps += found
        at_s = end_s + chance.uniform(0.5, 2.0) * lease_s


class Nemesis:
    """Injects faults. `note` gets a line at the begin and at the end of each."""

    def __init__(self, brokers: BrokerSet, *, note: Callable[[str], None]) -> None:
        self.brokers = brokers
        self._note = note
        self.counts: Counter[str] = Counter()
        """How often each kind was injected."""

    async def run(self, plan: Plan) -> None:
        """Inject all faults of a plan; on return everything is as before, but members may still start."""
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as tasks:
                for step in plan.steps:
                    await asyncio.sleep(max(0.0, began + step.at_s - time.monotonic()))
                    tasks.create_task(self._step(step), name=f"fault-{step.kind}")
        finally:
            self.restore()

    def restore(self) -> None:
        """End all faults."""
        self.brokers.network.heal()
        for member in self.brokers.members:
            if self.brokers.has_disks:
                member.free_disk()
            member.go_on()
            member.start()
        self.restore_etcd()

    def restore_etcd(self) -> None:
        """Let all members of etcd run."""
        for each in self.brokers.etcd_members:
            if each.process is None:
                each.start()
            each.go_on()

    async def _step(self, step: Step) -> None:
        try:
            async with KINDS[step.kind].inject(self, step) as target:
                self.counts[step.kind] += 1
                self._note(f"{step.kind} {target} begins")
                await asyncio.sleep(step.lasts_s)
            self._note(f"{step.kind} {target} ends")
        except NoTargetError as error:
            self._note(f"{step.kind} is left out: {error}")

    # -- targets ---------------------------------------------------------------------------------

    async def master(self, _: Step | None = None) -> BrokerNode:
        """The present master, or the next one if it does not take long."""
        deadline = time.monotonic() + 2 * self.brokers.lease_s
        while time.monotonic() < deadline:
            if (master := await self._known_master()) is not None:
                return master
            await asyncio.sleep(_LOOK_S)
        raise NoTargetError("there is no master")

    async def _known_master(self) -> BrokerNode | None:
        """By etcd; while that is away, by the name server."""
        for look in (self.brokers.master, self.brokers.registered_master):
            with contextlib.suppress(KourouError):
                return await look()
        return None

    async def slave(self, step: Step) -> BrokerNode:
        """A member that is not master."""
        master = await self.master()
        slaves = [each for each in self.brokers.members if each is not master and each.is_running]
        if not slaves:
            raise NoTargetError("no slave is running")
        return slaves[step.pick % len(slaves)]


# -- processes ---------------------------------------------------------------------------------------


def _process(
    target: Callable[[Nemesis, Step], Awaitable[BrokerNode]],
    hit: Callable[[BrokerNode], None],
    restore: Callable[[BrokerNode], None],
) -> Inject:
    @asynccontextmanager
    async def inject(nemesis: Nemesis, step: Step) -> AsyncIterator[str]:
        member = await target(nemesis, step)
        hit(member)
        yield str(member)
        restore(member)

    return inject


def _free_and_restart(member: BrokerNode) -> None:
    """A broker does not trust a disk that has failed: it is started again, as an operator would."""
    member.free_disk()
    member.kill()
    member.start()


@asynccontextmanager
async def _stop_master(nemesis: Nemesis, _: Step) -> AsyncIterator[str]:
    """In order, as for an update."""
    master = await nemesis.master()
    if not master.is_running or master.is_paused:
        raise NoTargetError(f"{master} does not run")
    await master.stop()
    yield str(master)
    master.start()


@asynccontextmanager
async def _kill_promoted(nemesis: Nemesis, _: Step) -> AsyncIterator[str]:
    """The master, and its successor as soon as it has the key."""
    master = await nemesis.master()
    brokers = nemesis.brokers
    master.kill()
    successor = await _next_master(brokers, master, within_s=10 * brokers.lease_s)
    if successor is not None:
        successor.kill()
    yield f"{master}, {successor or 'no successor in time'}"
    master.start()
    if successor is not None:
        successor.start()


async def _next_master(brokers: BrokerSet, but: BrokerNode, within_s: float) -> BrokerNode | None:
    """The first other master, as soon as its key is there."""
    state = SetState(brokers.keys)
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(within_s),
            EtcdClient([each.address for each in brokers.etcd_members]) as client,
            contextlib.aclosing(watch(client, brokers.keys.master)) as changes,
        ):
            async for seen in changes:
                state.update(seen)
                if state.master is not None and state.master.address != but.address:
                    return brokers.member_at(state.master.address)
    return None


@asynccontextmanager
async def _handover(nemesis: Nemesis, step: Step) -> AsyncIterator[str]:
    slave = await nemesis.slave(step)
    answer = "accepted"
    try:
        if not await nemesis.brokers.hand_over(slave):
            answer = "refused"
    except KourouError as error:
        answer = str(error)
    yield f"to {slave} ({answer})"


# -- links -------------------------------------------------------------------------------------------


def _link(links: Callable[[Nemesis, Step, BrokerNode], Sequence[str]], way: str) -> Inject:
    """Cut the master off from some nodes: both ways, or only what it sends (`out`) or gets (`in`)."""

    @asynccontextmanager
    async def inject(nemesis: Nemesis, step: Step) -> AsyncIterator[str]:
        master = await nemesis.master()
        network = nemesis.brokers.network
        others = links(nemesis, step, master)
        cuts: list[Cut] = []
        for other in others:
            ends = (other, master.name) if way == "in" else (master.name, other)
            cuts.append(network.cut(*ends, one_way=way != "both"))
        yield f"{master} and {', '.join(others)}"
        for cut in cuts:
            cut.heal()

    return inject


def _etcd(nemesis: Nemesis, _: Step, __: BrokerNode) -> Sequence[str]:
    return nemesis.brokers.etcd_nodes


def _clients(_: Nemesis, __: Step, ___: BrokerNode) -> Sequence[str]:
    return [CLIENTS]


def _name_server(_: Nemesis, __: Step, ___: BrokerNode) -> Sequence[str]:
    return [NAMESRV]


def _one_slave(nemesis: Nemesis, step: Step, master: BrokerNode) -> Sequence[str]:
    slaves = _all_slaves(nemesis, step, master)
    return [slaves[step.pick % len(slaves)]]


def _all_slaves(nemesis: Nemesis, _: Step, master: BrokerNode) -> list[str]:
    return [each.name for each in nemesis.brokers.members if each is not master]


def _all_but_clients(nemesis: Nemesis, step: Step, master: BrokerNode) -> Sequence[str]:
    return [NAMESRV, *_etcd(nemesis, step, master), *_all_slaves(nemesis, step, master)]


# -- etcd --------------------------------------------------------------------------------------------


def _etcd_leader(hit: Callable[[EtcdMember], None]) -> Inject:
    @asynccontextmanager
    async def inject(nemesis: Nemesis, _: Step) -> AsyncIterator[str]:
        leader = await nemesis.brokers.etcd_leader()
        if leader is None or leader.process is None:
            raise NoTargetError("etcd has no leader")
        hit(leader)
        yield leader.name
        if leader.process is None:
            leader.start()
        leader.go_on()

    return inject


def _all_of_etcd(hit: Callable[[EtcdMember], None]) -> Inject:
    @asynccontextmanager
    async def inject(nemesis: Nemesis, _: Step) -> AsyncIterator[str]:
        for member in nemesis.brokers.etcd_members:
            if member.process is not None:
                hit(member)
        yield "all members"
        nemesis.restore_etcd()

    return inject


KINDS: Final[dict[str, Kind]] = {
    "kill-master": Kind(_process(Nemesis.master, BrokerNode.kill, BrokerNode.start), 0.5, 3.0),
    "kill-slave": Kind(_process(Nemesis.slave, BrokerNode.kill, BrokerNode.start), 0.5, 3.0),
    "stop-master": Kind(_stop_master, 0.2, 1.0),
    "pause-master": Kind(_process(Nemesis.master, BrokerNode.pause, BrokerNode.go_on), 1.2, 3.0),
    "pause-slave": Kind(_process(Nemesis.slave, BrokerNode.pause, BrokerNode.go_on), 1.2, 3.0),
    "kill-promoted": Kind(_kill_promoted, 0.5, 2.0),
    "handover": Kind(_handover, 0.5, 1.0),
    "cut-etcd": Kind(_link(_etcd, "both"), 1.2, 3.0),
    "cut-etcd-out": Kind(_link(_etcd, "out"), 1.2, 3.0),
    "cut-etcd-in": Kind(_link(_etcd, "in"), 1.2, 3.0),
    "cut-slave": Kind(_link(_one_slave, "both"), 1.2, 3.0),
    "cut-slave-out": Kind(_link(_one_slave, "out"), 1.2, 3.0),
    "cut-slave-in": Kind(_link(_one_slave, "in"), 1.2, 3.0),
    "cut-slaves": Kind(_link(_all_slaves, "both"), 1.2, 3.0),
    "cut-clients": Kind(_link(_clients, "both"), 0.5, 2.0),
    "cut-clients-out": Kind(_link(_clients, "out"), 0.5, 2.0),
    "cut-clients-in": Kind(_link(_clients, "in"), 0.5, 2.0),
    "cut-namesrv": Kind(_link(_name_server, "both"), 0.5, 3.0),
    "isolate-master": Kind(_link(_all_but_clients, "both"), 1.2, 3.0),
    "pause-etcd-leader": Kind(_etcd_leader(EtcdMember.pause), 0.5, 2.0),
    "kill-etcd-leader": Kind(_etcd_leader(EtcdMember.stop), 0.5, 2.0),
    "pause-etcd": Kind(_all_of_etcd(EtcdMember.pause), 1.5, 4.0),
    "kill-etcd": Kind(_all_of_etcd(EtcdMember.stop), 1.5, 3.0),
    "full-disk": Kind(
        _process(Nemesis.slave, BrokerNode.fill_disk, _free_and_restart), 1.0, 3.0, needs_disks=True
    ),
}
"""All faults."""


def kinds_for(brokers: BrokerSet) -> list[str]:
    """The faults that are possible with a set."""
    return [name for name, kind in KINDS.items() if brokers.has_disks or not kind.needs_disks]
