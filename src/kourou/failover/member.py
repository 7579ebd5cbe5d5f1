"""FailoverMember: one member of a broker set, and the broker that it runs in the role of the moment.

One task follows the keys of the set in etcd, one renews the lease, one collects promises while etcd cannot
be reached, and one acts: it takes over where there is no master, follows the master there is, keeps the
in-sync set while this member is master, and steps down when its reign is over. To change the role is to stop
the broker and to start it anew, in this process, at the same address: a slave that becomes master goes
through the recovery that every start of a master does.

Not here: what a master may do (broker/replication/reign.py), who may become one (election.py), who is in
sync (in_sync_upkeep.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import msgspec

from kourou import __version__
from kourou.broker.admission import AdmissionCheck
from kourou.broker.controller import BrokerController
from kourou.broker.hooks import BrokerHooks
from kourou.broker.replication.membership import Membership
from kourou.broker.replication.reign import Reign, boottime_s
from kourou.broker.services import with_ports
from kourou.broker.settings import store_config, store_host, store_root
from kourou.clock import Clock
from kourou.config.broker import MASTER_ID, SLAVE, SYNC_MASTER, BrokerConfig
from kourou.errors import (
    ConfigError,
    EtcdRefusedError,
    EtcdUnavailableError,
    KourouError,
    RequestError,
)
from kourou.etcd import watch
from kourou.failover.election import Candidacy, best_successor, candidacy, first_set, restarted_wait_s
from kourou.failover.identity import IdentityFile, MemberIdentity
from kourou.failover.in_sync_upkeep import InSyncUpkeep, names
from kourou.failover.lease import MemberLease
from kourou.failover.promises import Promise, PromiseRequests
from kourou.failover.requests import FailoverRequests, failover_keys
from kourou.failover.set_client import SetClient, Throne
from kourou.failover.set_state import MasterValue, MemberValue, SetState
from kourou.protocol.codes import ResponseCode
from kourou.protocol.headers.controller import PromiseRequestHeader
from kourou.store.disk.files import Files
from kourou.transport.addresses import join_address
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.etcd.client import MemberStatus
    from kourou.metrics.families import Family
    from kourou.store.kernel import KernelChoice

_log = logging.getLogger(__name__)

_RETRY_S: Final = 0.25
_ROLE_STOP_MS: Final = 1_000
_CHANGE_S: Final = 10.0
_HANDOVER_S: Final = 2.0
_SUCCESSOR_S: Final = 5.0
_STATUS_S: Final = 60.0


class FailoverMember:
    """A broker whose role etcd decides. Create it on the running loop, `start` and `stop` it once."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        hooks: BrokerHooks | None = None,
        checks: Iterable[AdmissionCheck] = (),
        has_metrics: bool = False,
    ) -> None:
        _check(config)
        self._config = with_ports(config)
        self._files = files or Files()
        self._clock = clock or Clock()
        self._hooks = hooks
        self._checks = tuple(checks)
        self._has_metrics = has_metrics
        self._client = SetClient.of(self._config)
        self._keys = self._client.keys
        self._tasks = TaskOwner("failover")
        self._requests = FailoverRequests(
            self,
            cluster=config.broker_cluster_name,
            broker_name=self._config.broker_name,
            tasks=self._tasks,
        )
        self._changed = asyncio.Event()
        self._role_lock = asyncio.Lock()  # held while the role changes
        self._identity_file = IdentityFile(self._files, store_root(self._config))
        self._identity: MemberIdentity | None = None
        self._lease: MemberLease | None = None
        self._broker: BrokerController | None = None
        self._upkeep: InSyncUpkeep | None = None
        self._promise = Promise(config.failover_lease_seconds)
        self._addresses: dict[int, str] = {}  # of all members that were seen
        self._is_claiming = False  # whether the outcome of a transaction that makes it master is open
        self._parted_at: int | None = None
        self._successor: int | None = None
        self._is_retiring = False
        self._is_up_to_date = False  # whether it has followed or reigned since the process was started
        self.is_serving = False
        """Whether the broker has started in its present role."""
        self._no_master_since: float | None = None
        self._said: dict[str, str] = {}
        self.state = SetState(self._keys)
        """What etcd had last."""
        self.etcd_members: Sequence[MemberStatus] = ()
        """How the members of etcd have answered last."""

    # -- start and stop ----------------------------------------------------------------------------

    async def start(self) -> None:
        """On return the broker serves, as a slave or as master. ConfigError: etcd has another set than the
        store; or etcd cannot be reached, and this member is new."""
        try:
            await self._join()
            await self._start_broker()
            self._lease = self._new_lease()
        except BaseException:
            self._client.etcd.close()
            raise
        self._tasks.start(self._follow_set(), "watch")
        self._tasks.start(self._keep_lease(), "lease")
        self._tasks.start(self._keep_statuses(), "etcd")
        if self._config.failover_continues_without_etcd:
            assert self._identity is not None
            requests = PromiseRequests(self._config, self._identity, self._addresses)
            self._tasks.start(requests.run(lambda: self._reign if self.is_serving else None), "promises")
        self._tasks.start(self._keep_role(), "role")

    async def stop(self, timeout_ms: int = 5_000) -> None:
        """Stop in order; a master hands over first."""
        self._is_retiring = True
        if self._upkeep is not None and self._upkeep.reign.is_good() and self.is_serving:
            with suppress(KourouError):
                await self._abdicate(self._upkeep, self._best_successor())
        await self._stop_tasks()
        try:
            if self._reign is not None:
                self._reign.end("the broker stops")
            if self._broker is not None:
                await self._broker.stop(timeout_ms)
        finally:
            if self._lease is not None:
                await self._lease.end()
            self._client.etcd.close()

    async def _stop_tasks(self) -> None:
        """End all tasks, but not in the middle of a change of role: a broker that is half started, or a log
        that is half cut, would have to be ended by others."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHANGE_S):
                await self._role_lock.acquire()
        await self._tasks.stop()

    async def wait_failed(self) -> None:
        """Raise what a task of this member, or its broker, died of; return when it has stopped."""
        await self._tasks.wait_failed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- looking in ----------------------------------------------------------------------------------

    @property
    def broker(self) -> BrokerController:
        """The broker in its present role."""
        assert self._broker is not None, "the member is not started"
        return self._broker

    @property
    def member_id(self) -> int:
        """The number of this member in its set."""
        assert self._identity is not None, "the member is not started"
        return self._identity.member_id

    @property
    def _reign(self) -> Reign | None:
        return self._upkeep.reign if self._upkeep is not None else None

    @property
    def is_master(self) -> bool:
        """Whether this member is master now."""
        return self._reign is not None and self._reign.is_good()

    @property
    def min_in_sync(self) -> int:
        """How many copies there have to be, the master's among them."""
        config = self._config
        return config.min_copies if config.broker_role == SYNC_MASTER else 1

    @property
    def config(self) -> BrokerConfig:
        """The configuration of the present role."""
        return self.broker.config

    @property
    def port(self) -> int:
        """The port listened on."""
        return self._config.listen_port

    @property
    def address(self) -> str:
        """`host:port` as clients see it in routes."""
        return join_address(self._config.broker_ip1, self._config.listen_port)

    @property
    def kernel(self) -> KernelChoice:
        """Whether the broker uses the compiled kernel."""
        return self.broker.kernel

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return self.broker.probe_address

    @property
    def metrics_address(self) -> str | None:
        """`host:port` where metrics are served; None: nowhere."""
        return self.broker.metrics_address

    async def metric_families(self) -> list[Family]:
        """The metrics of this moment."""
        return await self.broker.metric_families()

    # -- joining ---------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Find out which member this is; a new one needs etcd for that."""
        known = await asyncio.to_thread(self._identity_file.load)
        try:
            self.state = await self._client.read()
            if known is None:
                known = await self._client.join()
                await asyncio.to_thread(self._identity_file.save, known)
            else:
                self._client.check(known, self.state)
        except EtcdUnavailableError as error:
            if known is None:
                raise ConfigError(
                    f"fail-over: this broker is not yet a member of its set, and {error}; check "
                    "failoverEtcdEndpoints, or start etcd"
                ) from error
            self._say("etcd cannot be reached: this broker starts as a slave (%s)", error)
        self._identity = known
        _log.info("this broker is member %d of set %s", known.member_id, self._keys.prefix)

    def _new_lease(self) -> MemberLease:
        config, broker = self._config, self.broker
        log_end = broker.services.store.log.max_phy_offset
        value = MemberValue(
            member_id=self.member_id,
            address=self.address,
            ha_address=self._ha_address,
            priority=config.broker_election_priority,
            software=f"kourou {__version__}",
            log_epoch=broker.running.master.epoch_before(log_end),
            log_end=log_end,
        )
        return MemberLease(self._client, value, config.failover_lease_seconds)

    def _caught_up(self) -> None:
        self._is_up_to_date = True

    def _taken_part(self) -> None:
        """Remember that this store has been the set's: what it has beyond the master's log may be cut off."""
        assert self._identity is not None
        if not self._identity.has_taken_part:
            self._identity = msgspec.structs.replace(self._identity, has_taken_part=True)
            self._identity_file.save(self._identity)

    @property
    def _ha_address(self) -> str:
        config = self._config
        return join_address(config.broker_ip2, config.ha_listen_port or config.listen_port + 1)

    # -- the broker in its role --------------------------------------------------------------------------

    async def _start_broker(self) -> None:
        """Start the broker: as master if there is a reign, else as slave."""
        reign, config = self._reign, self._config
        role = (
            {"broker_id": MASTER_ID}
            if reign is not None
            else {"broker_id": self.member_id, "broker_role": SLAVE}
        )
        self._broker = broker = BrokerController(
            replace(config, **role),
            files=self._files,
            clock=self._clock,
            hooks=self._hooks,
            checks=self._checks,
            membership=Membership(
                reign=reign,
                known_epoch=lambda: self.state.epoch,
                parted=self._parted,
                followed=self._taken_part,
                caught_up=self._caught_up,
            ),
            has_metrics=self._has_metrics,
            handlers=[self._requests],
            runtime_keys=partial(failover_keys, self),
        )
        await broker.start()
        self.is_serving = True
        self._tasks.start(_fail_with(broker), "broker")
        if reign is None:
            self._follow(self.state.master)

    async def _change_role(self) -> None:
        """Stop the broker and start it in the role of the moment."""
        async with self._role_lock:
            self.is_serving = False
            await self.broker.stop(_ROLE_STOP_MS)
            if self._parted_at is not None:
                await self._cut(self._parted_at)
                self._parted_at = None
            await self._start_broker()

    def _parted(self, common_phy_offset: int) -> None:
        self._parted_at = common_phy_offset
        self._changed.set()

    async def _cut(self, phy_offset: int) -> None:
        """Cut off what the master's log does not have."""
        assert self._identity is not None
        if not self._identity.has_taken_part:
            raise ConfigError(
                f"fail-over: the store {store_root(self._config)} has messages that the master of "
                f"{self._keys.prefix} does not have, and was never part of this set; give this broker an "
                "empty store, or start the one with the messages to keep first"
            )
        from kourou.store.replica.log_cut import cut_log  # rarely used, and a start should be fast

        config = store_config(self._config, store_host(self._config))
        await asyncio.to_thread(
            cut_log,
            self._files,
            config,
            phy_offset,
            set_name=self._keys.prefix,
            now_ms=self._clock.wall_ms,
        )

    def _follow(self, master: MasterValue | None) -> None:
        slave = self.broker.running.slave
        if master is not None and slave is not None and master.member_id != self.member_id:
            slave.master_found(master.ha_address, master.address)

    # -- etcd --------------------------------------------------------------------------------------------

    async def _follow_set(self) -> None:
        async for seen in watch(self._client.etcd, self._keys.prefix):
            self.state.update(seen)
            self._addresses |= {each.member_id: each.address for each in self.state.members.values()}
            self._changed.set()

    async def _keep_lease(self) -> None:
        lease = self._lease
        assert lease is not None
        while True:
            throne = self._upkeep.throne if self._upkeep is not None else None
            try:
                is_held = await lease.renew(throne, partial(self._key_lost, throne))
            except (EtcdUnavailableError, EtcdRefusedError) as error:
                self._say("the lease cannot be renewed: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._said.clear()
                if is_held and (reign := self._reign_of(throne)) is not None:
                    reign.renewed(lease.deadline_s)
                await asyncio.sleep(lease.period_s)

    def _reign_of(self, throne: Throne | None) -> Reign | None:
        """The present reign, if it has this key."""
        upkeep = self._upkeep
        if throne is None or upkeep is None or upkeep.throne.created_revision != throne.created_revision:
            return None
        return upkeep.reign

    def _key_lost(self, throne: Throne | None, reason: str) -> None:
        if (reign := self._reign_of(throne)) is not None:
            reign.key_lost(reason)
            self._changed.set()

    async def _keep_statuses(self) -> None:
        while True:
            self.etcd_members = await self._client.etcd.statuses()
            await asyncio.sleep(_STATUS_S)

    def _say(self, text: str, problem: object) -> None:
        """Log a problem once."""
        if self._said.get(text) != str(problem):
            self._said[text] = str(problem)
            _log.warning(text, problem)

    # -- the role ------------------------------------------------------------------------------------------

    async def _keep_role(self) -> None:
        while True:
            self._changed.clear()
            try:
                wait_s = await (self._reign_on() if self._reign is not None else self._serve())
            except (EtcdUnavailableError, EtcdRefusedError) as error:
                self._say("%s", error)
                wait_s = _RETRY_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    # -- as slave ------------------------------------------------------------------------------------------

    async def _serve(self) -> float:
        """One step of a slave; when the next one is due."""
        if self._parted_at is not None:
            await self._change_role()
        state, master = self.state, self.state.master
        if not state.is_known or self._is_retiring:
            return _RETRY_S
        assert self._identity is not None
        if state.set_id != self._identity.set_id:
            self._say("etcd has another set than this store's, or none: %s", state.set_id)
            return _RETRY_S
        if master is None:
            return await self._be_candidate()
        self._no_master_since = None
        if master.member_id == self.member_id:
            # Of an earlier reign. That of an earlier process expires: its machine may have crashed and lost
            # the end of the log, so the others are not to be overtaken.
            if self._is_up_to_date:
                await self._client.remove_master(state.created_revision(self._keys.master))
            return _RETRY_S
        self._follow(master)
        return self._config.failover_lease_seconds

    async def _be_candidate(self) -> float:
        now_s = boottime_s()
        if self._no_master_since is None:
            self._no_master_since = now_s
        if (promised_s := self._promised_s) > 0:
            self._no_master_since = None  # turns begin when promises are over
            return promised_s
        candidate = self._candidacy()
        if candidate.problem is not None:
            self._say("there is no master: %s", candidate.problem)
            return self._config.failover_lease_seconds
        left_s = self._no_master_since + candidate.turn_s - now_s
        if left_s > 0:
            return left_s
        await self._take_over()
        return 0.0 if self._reign is not None else _RETRY_S

    def _candidacy(self) -> Candidacy:
        config, log = self._config, self.broker.services.store.log
        found = candidacy(
            self.state,
            self.member_id,
            end_phy_offset=log.max_phy_offset,
            may_lose_messages=config.failover_may_lose_messages,
        )
        if self._is_up_to_date or found.problem is not None:
            return found
        wait_s = restarted_wait_s(self.state, self.member_id, config.failover_lease_seconds)
        return replace(found, turn_s=found.turn_s + wait_s)

    @property
    def _promised_s(self) -> float:
        """For how long this member may not take over: it has promised that to a master without etcd. One that
        hands over needs no promise."""
        state = self.state
        has_promised = self._config.failover_continues_without_etcd and state.in_sync is not None
        return self._promise.left_s if has_promised and state.handover is None else 0.0

    async def _take_over(self) -> None:
        state = self.state
        await self._renew_lease()
        slave = self.broker.running.slave
        if state.handover == self.member_id and slave is not None:
            await slave.copy_tables()
        # The state may have changed meanwhile. From here to the transaction nothing else runs.
        since_s = self._no_master_since
        if state.master is not None or since_s is None or self._parted_at is not None or self._promised_s > 0:
            return
        candidate = self._candidacy()
        if candidate.problem is not None or boottime_s() < since_s + candidate.turn_s:
            return
        epoch = max(state.epoch, self.broker.running.master.last_epoch) + 1
        members = first_set(state, self.member_id, min_copies=self.min_in_sync)
        claimed = await self._claim(state, epoch, members)
        if claimed is None:
            return
        throne, deadline_s = claimed
        self._no_master_since = None
        self._successor = None
        reign = Reign(epoch=epoch, member_id=self.member_id, in_sync=members, deadline_s=deadline_s)
        reign.on_end.append(self._changed.set)
        self._upkeep = InSyncUpkeep(
            self._client,
            reign,
            throne,
            self._config,
            min_copies=self.min_in_sync,
            broker=lambda: self._broker if self.is_serving else None,
            alive=lambda: self.state.members,
        )
        self._caught_up()
        await asyncio.to_thread(self._taken_part)
        _log.info("member %d takes over in epoch %d; in sync: %s", self.member_id, epoch, names(members))
        await self._change_role()

    async def _renew_lease(self) -> None:
        """Renew the lease, if it was not done lately."""
        lease = self._lease
        assert lease is not None
        if lease.deadline_s - boottime_s() < lease.period_s:
            await lease.renew(None, lambda reason: None)

    async def _claim(
        self, state: SetState, epoch: int, in_sync: tuple[int, ...]
    ) -> tuple[Throne, float] | None:
        """Write the master's key and the in-sync set; how long the lease of it lasts. None: the state in etcd
        is another one."""
        lease = self._lease
        assert lease is not None
        master = MasterValue(
            member_id=self.member_id, epoch=epoch, address=self.address, ha_address=self._ha_address
        )
        lease_id, deadline_s = lease.lease_id, lease.deadline_s
        if not lease_id:
            return None
        self._is_claiming = True
        try:
            throne = await self._client.take_over(state, master, in_sync, lease_id)
        except EtcdUnavailableError:
            # It may have been done: without the lease it is undone.
            await lease.end()
            raise
        finally:
            self._is_claiming = False
        if throne is None:
            return None
        if lease.lease_id != lease_id:  # it was lost meanwhile: the key is not under the present one
            await self._client.remove_master(throne.created_revision)
            return None
        return throne, deadline_s

    # -- as master -----------------------------------------------------------------------------------------

    async def _reign_on(self) -> float:
        """One step of a master; when the next one is due."""
        upkeep = self._upkeep
        assert upkeep is not None
        reign, created = upkeep.reign, upkeep.throne.created_revision
        if self._is_retiring:
            return _RETRY_S
        state = self.state
        if state.revision >= created != state.created_revision(self._keys.master):
            if state.master is not None and state.master.member_id != self.member_id:
                reign.end(f"member {state.master.member_id} is master")
            else:
                reign.key_lost("its key in etcd is gone")
        if not reign.is_good():
            await self._step_down(reign)
            return 0.0
        if reign.lacks_key:
            await self._reclaim(upkeep)
            return 0.0 if reign.is_good() and not reign.lacks_key else _RETRY_S
        if reign.rests_on_promises:
            upkeep.withdraw()
            return min(_RETRY_S, reign.left_s)
        if self._successor is not None:
            successor, self._successor = self._successor, None
            await self._abdicate(upkeep, successor)
            return 0.0
        return await upkeep.step()

    async def _step_down(self, reign: Reign) -> None:
        _log.warning("member %d is no longer master: %s", self.member_id, reign.why_not_good)
        reign.end(reign.why_not_good or "")
        self._upkeep = None
        await self._change_role()

    # -- without etcd ----------------------------------------------------------------------------------------

    def promise(self, header: PromiseRequestHeader) -> int:
        """Promise a master that cannot reach etcd not to take over; for how many milliseconds.
        RequestError."""
        assert self._identity is not None
        problem = None
        if not self._config.failover_continues_without_etcd:
            problem = f"failoverContinuesWithoutEtcd is not set at member {self.member_id}"
        elif header.kourou_set_id != self._identity.set_id:
            problem = f"this is a member of set {self._identity.set_id}"
        elif header.kourou_epoch < self.state.epoch:
            problem = f"epoch {self.state.epoch} has begun"
        elif header.kourou_asked_id != self.member_id:
            problem = f"this is member {self.member_id}, not {header.kourou_asked_id}"
        elif self._upkeep is not None or self._is_claiming:
            problem = f"member {self.member_id} takes over itself"
        elif not self._follows(header.kourou_member_id):
            problem = f"member {self.member_id} does not follow member {header.kourou_member_id}"
        if problem is not None:
            raise RequestError(ResponseCode.CONTROLLER_INVALID_MASTER, problem)
        return self._promise.give(header.kourou_asked_ms)

    def _follows(self, member_id: int) -> bool:
        slave = self.broker.running.slave if self.is_serving else None
        return slave is not None and slave.followed == self._addresses.get(member_id)

    async def _reclaim(self, upkeep: InSyncUpkeep) -> None:
        """Write the master's key again, which has expired while etcd could not be reached."""
        reign = upkeep.reign
        await self._renew_lease()
        state = await self._client.read()
        in_sync, master = state.in_sync, state.master
        if master is not None and (master.member_id, master.epoch) == (self.member_id, reign.epoch):
            return  # an attempt of unknown outcome, whose lease has been given up
        known = {self.member_id, *reign.waited_for}
        is_same = in_sync is not None and master is None and state.epoch == reign.epoch
        if in_sync is None or not is_same or not known.issuperset(in_sync.members):
            reign.end("its key in etcd was gone, and the set has changed meanwhile")
            return
        claimed = await self._claim(state, reign.epoch, in_sync.members)
        if claimed is None:
            return  # it is read again
        throne, deadline_s = claimed
        upkeep.hold(throne)
        reign.key_found(deadline_s)
        _log.info("etcd is back: member %d is master in epoch %d as before", self.member_id, reign.epoch)

    # -- handing over ----------------------------------------------------------------------------------------

    async def hand_over(self, target: int | None) -> int:
        """Begin to hand over to a member, or to the best one; which it is. RequestError."""
        upkeep = self._upkeep
        if upkeep is None or not upkeep.reign.is_good():
            raise RequestError(ResponseCode.CONTROLLER_INVALID_MASTER, "this broker is not the master")
        successor = target if target is not None else self._best_successor()
        if successor is None:
            raise RequestError(
                ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "no other member is in sync and alive"
            )
        in_sync = upkeep.reign.in_sync
        if successor not in in_sync:
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"member {successor} is not in sync; the members in sync are {names(in_sync)}",
            )
        if successor not in upkeep.links():
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"member {successor} is not connected to the master now; it reconnects within seconds, or "
                "see its log",
            )
        self._successor = successor
        self._changed.set()
        return successor

    def _best_successor(self) -> int | None:
        upkeep = self._upkeep
        if upkeep is None:
            return None
        return best_successor(self.state, upkeep.reign.in_sync & upkeep.links().keys())

    async def _abdicate(self, upkeep: InSyncUpkeep, successor: int | None) -> None:
        """Accept nothing more, wait until the successor has everything, and let it take over."""
        reign = upkeep.reign
        reign.end("it hands over" if successor is None else f"it hands over to member {successor}")
        log, deadline_s = self.broker.services.store.log, boottime_s() + _HANDOVER_S
        while successor is not None and boottime_s() < deadline_s:
            link = upkeep.links().get(successor)
            if link is None or link.ack_phy_offset >= log.max_phy_offset:
                break
            await asyncio.sleep(0.01)
        if not await self._client.remove_master(upkeep.throne.created_revision, successor=successor):
            return  # the key was gone
        _log.info("member %d has handed over%s", self.member_id, f" to {successor}" if successor else "")
        if successor is None:
            return
        # It still copies the tables from here.
        deadline_s = boottime_s() + _SUCCESSOR_S
        while boottime_s() < deadline_s:
            if self.state.master is not None and self.state.epoch > reign.epoch:
                return
            await asyncio.sleep(0.02)


async def _fail_with(broker: BrokerController) -> None:
    await broker.wait_failed()


def _check(config: BrokerConfig) -> None:
    if config.is_slave:
        raise ConfigError(
            "fail-over: brokerRole=SLAVE, but the members of a set choose their roles; set SYNC_MASTER or "
            "ASYNC_MASTER, which is how a master acknowledges"
        )
    if config.failover_continues_without_etcd and config.failover_may_lose_messages:
        raise ConfigError(
            "fail-over: failoverContinuesWithoutEtcd and failoverMayLoseMessages exclude each other: a "
            "member that is not in sync could become master beside one without etcd; set one to false"
        )
