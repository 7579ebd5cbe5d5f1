"""SlavePart: a broker that copies its master: the log by the HA link, the tables by requests.

It appends nothing of its own. Where the master is comes from the name servers with each registration, or from
`haMasterAddress`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kourou.broker.admission import Admission, RequestCheck
from kourou.broker.part import BrokerPart
from kourou.broker.replication.membership import CHANGES, READS
from kourou.broker.replication.metadata_sync import SYNC_INTERVAL_S, MetadataSync
from kourou.broker.replication.replica_client import DivergedError, ReplicaClient
from kourou.broker.replication.replica_status import MasterAddress, ReplicaState, ReplicaStatus
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.flush_service import flush_all
from kourou.errors import RequestError, ResponseError, StorageError
from kourou.protocol.bodies import encode_body
from kourou.protocol.bodies.ha import HAClientRuntimeInfo, HARuntimeInfo
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.features import Feature, parse_features
from kourou.protocol.headers.clients import HeartbeatResponseHeader
from kourou.protocol.headers.pull import ViewMessageRequestHeader
from kourou.store.log.put_status import PutStatus
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.transport.request import Processor, Request
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.replication.membership import Membership
    from kourou.broker.replication.metadata_sync import Follow
    from kourou.broker.replication.replica_proof import ReplicaProofs
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.dispatcher import Dispatcher
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.message_store import MessageStore
    from kourou.store.replica.epochs import EpochFile
    from kourou.transport.client import RemotingClient
    from kourou.transport.cycles import Cycles

_TIMEOUT_MS: Final = 3_000
# A member of a fail-over set may be master soon: what its tables do not have by then is lost.
_MEMBER_INTERVAL_S: Final = 1.0
_NOT_ON_SLAVES: Final = StorageError("a slave stores what its master has stored, and nothing else")

_SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
_TABLE_CHANGES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
)


def _nothing() -> None:
    return None


def _refuse_send(request: Request) -> None:
    status = PutStatus.SERVICE_NOT_AVAILABLE
    raise RequestError(ResponseCode(status.response_code), status.remark)


def _refuse_change(request: Request) -> None:
    raise RequestError(
        ResponseCode.SYSTEM_ERROR, "this broker is a slave, whose tables are its master's; change them there"
    )


def _refuse_member(request: Request) -> None:
    raise RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave of a fail-over set; ask the master"
    )


def _refuse_read(request: Request) -> None:
    raise RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "this broker is a slave of a fail-over set, whose last messages the next master may not have; read "
        "at the master, or set slaveReadEnable=true",
    )


ROLE_CHECKS: Final = (RequestCheck(_refuse_send, _SENDS), RequestCheck(_refuse_change, _TABLE_CHANGES))
"""What clients may not do on a slave. Requests with answers of their own (transactions, recalls, resets) are
refused by their processors."""


class SlavePart(BrokerPart):
    """The slave's side of replication. `master_found` is called with what name servers answer."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        store: MessageStore,
        log: CommitLog,
        appender: LogAppender,
        dispatcher: Dispatcher,
        epochs: EpochFile,
        cycles: Cycles,
        client: RemotingClient,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        delay_offsets: DelayOffsetManager,
        admission: Admission,
        disk: DiskThreads,
        store_work: asyncio.Lock,
        register_soon: Callable[[], None],
        tasks: TaskOwner,
        now_ms: Callable[[], int],
        address: str,
        status: ReplicaStatus,
        proofs: ReplicaProofs,
        membership: Membership | None,
        also_follow: Sequence[Follow] = (),
    ) -> None:
        self._config = config
        self._store = store
        self._commit_log = log
        self._appender = appender
        self._remoting = client
        self._topics = topics
        self._disk = disk
        self._store_work = store_work
        self._tasks = TaskOwner("replication", parent=tasks)
        self._client = ReplicaClient(
            config=config,
            address=address,
            log=log,
            replica=store.replica_log(),
            epochs=epochs,
            now_ms=now_ms,
            speaks_hello=self._speaks_hello,
            check=self._compare,
            before_dispatch=cycles.open,
            seek_master=register_soon if membership is None else _nothing,
            status=status,
            proofs=proofs,
            membership=membership,
        )
        self._master: MasterAddress | None = None
        self._metadata = MetadataSync(
            client=client,
            master_address=lambda: self._master.remoting if self._master else None,
            topics=topics,
            groups=groups,
            offsets=offsets,
            delay_offsets=delay_offsets,
            producers=store.producers,
            delete_queues=self._delete_queues,
            save=lambda table: disk.run_steps(table.persist_steps()),
            durable_end=lambda: log.flushed_phy_offset,
            log_end=lambda: log.max_phy_offset,
            interval_s=SYNC_INTERVAL_S if membership is None else _MEMBER_INTERVAL_S,
            also_follow=also_follow,
        )
        for check in ROLE_CHECKS:
            admission.add(check)
        if membership is not None:
            admission.add(RequestCheck(_refuse_member, CHANGES))
            if not config.current.slave_read_enable:
                admission.add(RequestCheck(_refuse_read, READS))
        dispatcher.on_arrival.append(self._arrived)

    def processors(self) -> Mapping[int, Processor]:
        return {RequestCode.GET_BROKER_HA_STATUS: self.get_ha_status}

    async def start(self, tasks: TaskOwner) -> None:
        self._appender.refuse("replication", _NOT_ON_SLAVES)
        self.master_found(None, None)
        self._tasks.start(self._client.run(), "follow")
        self._tasks.start(self._metadata.run(), "tables")

    async def stop(self, timeout_ms: int) -> None:
        await self._tasks.stop()

    def _arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        # The master's tables are copied every few seconds only.
        for queue in queues:
            if self._topics.is_derived(queue.topic):
                self._topics.derive(queue.topic, queue.queue_id)
                self._metadata.soon()

    async def _delete_queues(self, topics: set[str]) -> None:
        async with self._store_work:
            await flush_all(self._store, self._disk)
            for topic in topics:
                self._store.delete_topic(topic)

    async def copy_tables(self) -> None:
        """Copy the master's tables now, as far as it answers."""
        await self._metadata.sync()

    # -- the master --------------------------------------------------------------------------------

    @property
    def followed(self) -> str | None:
        """The address for requests of the master whose log is copied at the moment; None: of none."""
        status = self._client.status
        if status.state is not ReplicaState.FOLLOWING or status.master is None:
            return None
        return status.master.remoting

    def master_found(self, ha_address: str | None, remoting_address: str | None) -> None:
        """What a name server knows of the master of this broker name; None where it knows nothing."""
        ha_address = self._config.current.ha_master_address or ha_address
        if not ha_address:
            return
        known = self._master.remoting if self._master else None
        found = MasterAddress(ha_address, remoting_address or known)
        if found != self._master:
            self._master = found
            self._client.lead_by(found)
            self._metadata.soon()

    async def _speaks_hello(self, master: MasterAddress) -> bool:
        """Whether the master is one of ours. Apache's answers that it does not know the request."""
        if master.remoting is None:
            return False
        answer = await self._call(master.remoting, RemotingCommand.request(RequestCode.GET_KOUROU_FEATURES))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", master.remoting)
        return Feature.HA_HELLO in parse_features(answer.header(HeartbeatResponseHeader).kourou_features)

    async def _compare(self, master: MasterAddress) -> None:
        """Compare the last record with that of an Apache master, whose HA link compares nothing."""
        last = self._store.last_queued_record()
        if last is None or master.remoting is None:
            return
        phy_offset, size = last
        header = ViewMessageRequestHeader(phy_offset=phy_offset)
        command = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, header)
        answer = await self._call(master.remoting, command)
        is_there = answer.code == ResponseCode.SUCCESS
        if is_there and answer.body == self._commit_log.read(phy_offset, size):
            return
        raise DivergedError(
            f"this log has a record from {phy_offset} to {phy_offset + size} and ends at "
            f"{self._commit_log.max_phy_offset}; the master at {master.remoting} has "
            f"{'another one' if is_there else 'none'} there"
        )

    async def _call(self, address: str, command: RemotingCommand) -> RemotingCommand:
        return await self._remoting.call(address, command, _TIMEOUT_MS)

    # -- requests ------------------------------------------------------------------------------------

    def get_ha_status(self, request: Request) -> None:
        """907: how far this slave is."""
        status = self._client.status
        info = HARuntimeInfo(
            ha_client_runtime_info=HAClientRuntimeInfo(
                master_addr=status.master.ha if status.master else None,
                transferred_byte_in_second=self._client.rate.per_second(asyncio.get_running_loop().time()),
                max_offset=self._commit_log.max_phy_offset,
                last_read_timestamp=status.last_read_ms,
                last_write_timestamp=status.last_write_ms,
                kourou_problem=status.why_not_following,
            )
        )
        request.reply(body=encode_body(info))
