"""MasterPart: what every broker does for slaves, and what senders of a SYNC_MASTER wait for.

A master begins an epoch at each start: whatever its log may have lost at its end before, slaves notice it.
The port for slaves is open on every broker, as Apache's is; a slave's own slaves get nothing.
The master of a fail-over set reigns in an epoch that etcd has given, and refuses changes when that is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kourou.broker.admission import RequestCheck
from kourou.broker.part import BrokerPart
from kourou.broker.replication.membership import CHANGES, READS
from kourou.broker.replication.reign import InSyncAcks
from kourou.broker.replication.replica_acks import AckRule, ReplicaAcks
from kourou.broker.replication.replica_server import ReplicaServer
from kourou.config.broker import SYNC_MASTER, BrokerConfig
from kourou.errors import RequestError
from kourou.protocol.bodies import encode_body
from kourou.protocol.bodies.ha import (
    LAST_EPOCH_END,
    EpochEntry,
    EpochEntryCache,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.features import Feature, format_features
from kourou.protocol.headers.clients import HeartbeatResponseHeader
from kourou.transport.request import Processor, Request
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.replication.reign import Reign
    from kourou.broker.replication.replica_link import ReplicaLink
    from kourou.broker.replication.replica_proof import ReplicaProofs
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.replica.epochs import EpochFile
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)


class MasterPart(BrokerPart):
    """The master's side of replication."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log: CommitLog,
        epochs: EpochFile,
        offsets: ConsumerOffsetManager,
        queue_end: Callable[[str, int], int],
        disk: DiskThreads,
        cycles: Cycles,
        commit_cycle: CommitCycle,
        admission: Admission,
        appender: LogAppender,
        proofs: ReplicaProofs,
        reign: Reign | None,
        tasks: TaskOwner,
    ) -> None:
        self._config = config
        self._log = log
        self._reign = reign
        self._epochs = epochs
        self._offsets = offsets
        self._queue_end = queue_end
        self._cycles = cycles
        self._commit_cycle = commit_cycle
        self._admission = admission
        self._tasks = TaskOwner("replication", parent=tasks)
        self._acks = ReplicaAcks(_ack_rule(config.current))
        self._in_sync_acks: InSyncAcks | None = None
        self._read_check: RequestCheck | None = None
        self._rejects = False
        self.server = ReplicaServer(
            config=config,
            log=log,
            epochs=epochs,
            disk=disk,
            tasks=self._tasks,
            on_ack=self._acknowledged,
            after_write=commit_cycle.after_write,
            proofs=proofs,
            reign=reign,
        )
        if reign is not None:
            self._fence_by(reign, appender)

    def _fence_by(self, reign: Reign, appender: LogAppender) -> None:
        """Write, acknowledge and change nothing when the reign is over."""
        self._in_sync_acks = InSyncAcks(reign, min_copies=self._config.current.min_copies)
        appender.may_write = reign.is_good
        self._commit_cycle.may_acknowledge = reign.is_good
        self._offsets.may_commit = reign.is_good
        reign.on_end.append(lambda: self._cycles.run_now(self._commit_cycle.give_up))

        def check(_: Request) -> None:
            if not reign.is_good():
                raise RequestError(
                    ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker is not master: {reign.why_not_good}"
                )

        self._admission.add(RequestCheck(check, CHANGES))
        if self._config.current.broker_role == SYNC_MASTER:
            self._read_check = RequestCheck(_refuse_read, READS)
            self._admission.add(self._read_check)

    def _open_reads(self) -> None:
        """Let consumers read once every member of the in-sync set has what is in the log."""
        acks, check = self._in_sync_acks, self._read_check
        if acks is not None and check is not None and acks.has_taken_over():
            self._admission.remove(check)
            self._read_check = None
            _log.info("every member in sync has the log up to where this reign began: consumers may read")

    def processors(self) -> Mapping[int, Processor]:
        processors: dict[int, Processor] = {
            RequestCode.GET_KOUROU_FEATURES: self.get_features,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
        }
        if not self._config.current.is_slave:
            processors[RequestCode.GET_BROKER_HA_STATUS] = self.get_ha_status
        return processors

    def recover(self) -> None:
        self._epochs.load()
        if not self._config.current.is_slave:
            self._epochs.begin(self._log.max_phy_offset, self._reign.epoch if self._reign else None)
            if self._reign is not None:
                # What is in the log may have been acknowledged in an earlier reign.
                self._reign.confirmed_phy_offset = self._reign.begin_phy_offset = self._log.max_phy_offset
            self._offsets.cut(self._queue_end)

    async def start(self, tasks: TaskOwner) -> None:
        self._apply(self._config.current)
        self._open_reads()
        await self.server.start()

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        self._apply(new)

    def _apply(self, config: BrokerConfig) -> None:
        self._acks.rule = _ack_rule(config)
        self._commit_cycle.slave_timeout_ms = config.slave_timeout
        if self._in_sync_acks is not None:
            is_sync = config.broker_role == SYNC_MASTER
            self._in_sync_acks.min_copies = config.min_copies if is_sync else 1
            self._commit_cycle.replicas = self._in_sync_acks if is_sync else None
            self._rejects = is_sync
        else:
            self._commit_cycle.replicas = self._acks if self._acks.rule.copies > 1 else None
            self._rejects = self._acks.rule.rejects
        self._count_copies()

    async def stop(self, timeout_ms: int) -> None:
        await self.server.stop()
        await self._tasks.stop()

    def _acknowledged(self) -> None:
        links = [link for link in self.server.links if link.is_reporting]
        self._acks.update([link.ack_phy_offset for link in links])
        if self._in_sync_acks is not None:
            members = self.server.member_links()
            self._in_sync_acks.update({each: link.ack_phy_offset for each, link in members.items()})
            self._open_reads()
        if self._rejects:
            self._count_copies()
        if self._commit_cycle.is_waiting:
            self._cycles.run_now(self._commit_cycle.replicated)

    def in_sync_changed(self) -> None:
        """The in-sync set of a fail-over set is another one: fewer or more members are waited for."""
        self._acknowledged()

    @property
    def last_epoch(self) -> int:
        """The newest epoch of the log; 0: it has none."""
        return self._epochs.epochs[-1].epoch if self._epochs.epochs else 0

    def epoch_before(self, phy_offset: int) -> int:
        """The epoch of the records that end there; 0: it is not known."""
        return max(
            (each.epoch for each in self._epochs.epochs if each.start_phy_offset < phy_offset), default=0
        )

    def _count_copies(self) -> None:
        """Reject messages while there are fewer copies than their senders have to wait for. A slave that
        falls behind is noticed by its own reports."""
        acks = self._in_sync_acks or self._acks
        problem = acks.problem(self._log.max_phy_offset)
        was_open = self._admission.replica_problem is None
        self._admission.set_replica_problem(problem)
        if problem is not None and was_open:
            _log.warning("too few slaves are in sync, messages are rejected: %s", problem)
        elif problem is None and not was_open:
            _log.info("enough slaves are in sync, messages are accepted again")

    # -- requests ------------------------------------------------------------------------------------

    def get_features(self, request: Request) -> None:
        """29000: which extensions this broker offers."""
        request.reply(HeartbeatResponseHeader(kourou_features=format_features(Feature)))

    def get_ha_status(self, request: Request) -> None:
        """907: how far each slave is."""
        end, now_s = self._log.max_phy_offset, asyncio.get_running_loop().time()
        info = HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=(self._in_sync_acks or self._acks).in_sync(end),
            ha_connection_info=[
                self._connection(link, end, now_s) for link in self.server.links if link.is_reporting
            ],
        )
        request.reply(body=encode_body(info))

    def _connection(self, link: ReplicaLink, end_phy_offset: int, now_s: float) -> HAConnectionRuntimeInfo:
        gap = end_phy_offset - link.ack_phy_offset
        return HAConnectionRuntimeInfo(
            addr=link.address,
            slave_ack_offset=link.ack_phy_offset,
            diff=gap,
            in_sync=gap < self._config.current.ha_max_gap_not_in_sync,
            transferred_byte_in_second=link.rate.per_second(now_s),
            transfer_from_where=link.next_phy_offset,
            kourou_broker_id=None if link.slave is None else link.slave.broker_id,
            kourou_lag_ms=round(link.lag.seconds(now_s) * 1000),
        )

    def get_epochs(self, request: Request) -> None:
        """1007: the epochs of the log. Apache's brokers answer it in controller mode only."""
        config, epochs = self._config.current, self._epochs.epochs
        ends = [*(epoch.start_phy_offset for epoch in epochs[1:]), LAST_EPOCH_END]
        entries = [
            EpochEntry(epoch=each.epoch, start_offset=each.start_phy_offset, end_offset=end)
            for each, end in zip(epochs, ends, strict=False)
        ]
        cache = EpochEntryCache(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            epoch_list=entries,
            max_offset=self._log.max_phy_offset,
        )
        request.reply(body=encode_body(cache))


def _refuse_read(request: Request) -> None:
    raise RequestError(
        ResponseCode.SYSTEM_BUSY,
        "this broker has become master just now, and waits until the members in sync have what is in its log",
    )


def _ack_rule(config: BrokerConfig) -> AckRule:
    """For how many copies senders wait."""
    gap = config.ha_max_gap_not_in_sync
    if config.broker_role != SYNC_MASTER:
        return AckRule(max_gap_bytes=gap)
    if not config.in_sync_replicas:
        return AckRule(copies=2, max_gap_bytes=gap, answers_at_once=True)
    return AckRule(
        copies=config.in_sync_replicas,
        min_copies=config.min_copies,
        is_auto=config.enable_auto_in_sync_replicas,
        waits_for_all=config.all_ack_in_sync_state_set,
        max_gap_bytes=gap,
    )
