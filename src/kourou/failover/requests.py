"""FailoverRequests: how operators see and steer a broker set, by the requests of RocketMQ's controller.

    1002  elect a master           the master starts a handover; other members answer NOT_LEADER
    1004  replica information      master and in-sync set
    1005  the controller's leader  the master: tools send 1002 and 1006 to the leader
    1006  sync state set           all members, in sync or not

and one of Kourou's own, between members:

    29006 promise                  not to take over while the master cannot reach etcd (promises.py)

Every member answers from the state of etcd that it saw last. `brokerId` is a member's number, which it keeps
in either role. Not here: how a handover is done (FailoverControl).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, Protocol

from kourou.errors import RequestError
from kourou.etcd.client import MemberStatus
from kourou.failover.set_state import InSyncValue, MasterValue, SetState
from kourou.protocol.bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.failover_status import EtcdMember, FailoverStatus
from kourou.protocol.headers.controller import (
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    PromiseRequestHeader,
    PromiseResponseHeader,
)
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request
from kourou.transport.tasks import TaskOwner
from kourou.wording import counted

_log = logging.getLogger(__name__)

ANY_MEMBER: Final = -1
"""The brokerId of 1002 that leaves the choice to the set."""
_NO_SET: Final = InSyncValue(version=0, members=())


class FailoverControl(Protocol):
    """What requests need of a member."""

    @property
    def state(self) -> SetState:
        """The latest view of etcd."""
        ...

    @property
    def member_id(self) -> int:
        """The number of this member."""
        ...

    @property
    def is_master(self) -> bool:
        """Whether this member is master now."""
        ...

    @property
    def min_in_sync(self) -> int:
        """With fewer members in sync, messages are rejected."""
        ...

    @property
    def etcd_members(self) -> Sequence[MemberStatus]:
        """How the members of etcd answered last; empty if that is not known yet."""
        ...

    def promise(self, header: PromiseRequestHeader) -> int:
        """Promise not to take over; for how many milliseconds. RequestError if that is not possible."""
        ...

    async def hand_over(self, target: int | None) -> int:
        """Start a handover to `target`, a living member in sync, or to the preferred one of those. Returns
        its number while this member is still the master: the response leaves before the role changes.
        RequestError with a CONTROLLER_ code and the reason if it cannot be started."""
        ...


class FailoverRequests:
    """The requests of one member. A handover that a request waits for is a task of `tasks`."""

    def __init__(self, control: FailoverControl, *, cluster: str, broker_name: str, tasks: TaskOwner) -> None:
        self._control = control
        self._cluster = cluster
        self._broker_name = broker_name
        self._tasks = tasks

    def processors(self) -> Mapping[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect_master,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.get_replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.get_metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.get_sync_state_data,
            RequestCode.PROMISE_KOUROU_MASTER: self.promise,
        }

    # -- the set ---------------------------------------------------------------------------------

    def get_sync_state_data(self, request: Request) -> None:
        """1006: the sets of these names, of which this member knows its own; without names, its own."""
        names = decode_body(request.body, list[str]) if request.body else []
        table = {}
        if not names or self._broker_name in names:
            table[self._broker_name] = replicas_info(self._known_state(), self._broker_name)
        request.reply(body=encode_body(BrokerReplicasInfo(table)))

    def get_replica_info(self, request: Request) -> None:
        """1004: the master and the members in sync."""
        self._check_name(request.header(GetReplicaInfoRequestHeader).broker_name)
        state = self._known_state()
        master, in_sync = state.master, state.in_sync or _NO_SET
        header = GetReplicaInfoResponseHeader(
            master_broker_id=master.member_id if master else None,
            master_address=master.address if master else None,
            master_epoch=state.epoch,
        )
        body = SyncStateSet(list(in_sync.members), in_sync.version)
        request.reply(header, encode_body(body))

    def get_metadata(self, request: Request) -> None:
        """1005: Apache's tools ask a controller for the leader first. It is the master; without one this
        member, which answers everything but 1002."""
        state, own_id = self._known_state(), self._control.member_id
        master = state.master
        header = GetMetaDataResponseHeader(
            group=f"{self._cluster}/{self._broker_name}",
            controller_leader_id=str(master.member_id if master else own_id),
            # The address that the tool has connected to is one that it can reach.
            controller_leader_address=master.address if master else request.connection.local_address,
            is_leader=master is not None and master.member_id == own_id,
            peers=";".join(f"{each.member_id}-{each.address}" for each in state.members.values()),
        )
        request.reply(header)

    def promise(self, request: Request) -> None:
        """29006: do not take over for a while."""
        header = request.header(PromiseRequestHeader)
        self._check_name(header.broker_name, header.cluster_name)
        request.reply(PromiseResponseHeader(kourou_granted_ms=self._control.promise(header)))

    # -- handover --------------------------------------------------------------------------------

    def elect_master(self, request: Request) -> None:
        """1002: hand over to a member, or with brokerId -1 to the preferred one."""
        header = request.header(ElectMasterRequestHeader)
        self._check_name(header.broker_name, header.cluster_name)
        target = None if header.broker_id == ANY_MEMBER else header.broker_id
        state = self._known_state()
        master = check_handover(state, self._control.member_id, target)
        by = request.connection.remote_address
        _log.info("handover to member %s requested by %s", target or "of choice", by)
        run_request(self._tasks, request, self._hand_over(request, state, master, target))

    async def _hand_over(
        self, request: Request, state: SetState, master: MasterValue, target: int | None
    ) -> None:
        addresses = {each.member_id: each.address for each in state.members.values()}
        in_sync = state.in_sync or _NO_SET
        chosen = await self._control.hand_over(target)
        header = ElectMasterResponseHeader(
            master_broker_id=chosen,
            master_address=addresses.get(chosen),
            # Those of the reign that begins, as in the responses of Apache's controller.
            master_epoch=master.epoch + 1,
            sync_state_set_epoch=in_sync.version + 1,
        )
        request.reply(header, encode_body(BrokerMemberGroup(self._cluster, self._broker_name, addresses)))

    def _check_name(self, broker_name: str | None, cluster: str | None = None) -> None:
        if broker_name != self._broker_name or cluster not in (None, "", self._cluster):
            asked = f"broker {broker_name}" + (f" of cluster {cluster}" if cluster else "")
            raise RequestError(
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
                f"{asked}: this is a member of broker {self._broker_name} of cluster {self._cluster}; "
                "send the request to a member of that set",
            )

    def _known_state(self) -> SetState:
        state = self._control.state
        if not state.is_known:
            raise RequestError(
                ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
                "etcd has not answered this member since its start; see failoverEtcdEndpoints and its log",
            )
        return state


def check_handover(state: SetState, own_id: int, target: int | None) -> MasterValue:
    """Whether this member can hand over to `target`, None: to any; RequestError with the reason if not."""
    master, members = state.master, state.members
    if master is None:
        _refuse(ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, "the set has no master at present")
    if master.member_id != own_id:
        _refuse(
            ResponseCode.CONTROLLER_NOT_LEADER,
            f"only the master hands over: send the request to member {master.member_id} at {master.address}",
        )
    if target is not None and target not in members:
        alive = ", ".join(map(str, members))
        _refuse(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"member {target} is not alive; these are: {alive}")
    if target == master.member_id:
        _refuse(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, f"member {target} is the master already")
    in_sync = (state.in_sync or _NO_SET).members
    if target is not None and target not in in_sync:
        _refuse(
            ResponseCode.CONTROLLER_INVALID_REPLICAS,
            f"member {target} is not in sync, it lacks messages; in sync: {', '.join(map(str, in_sync))}",
        )
    if not any(each in members for each in in_sync if each != master.member_id):
        _refuse(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            f"no member but the master is alive and in sync ({counted(len(members), 'member')} alive); "
            "start another, or wait until it has caught up",
        )
    return master


def _refuse(code: ResponseCode, reason: str) -> NoReturn:
    raise RequestError(code, reason)


def replicas_info(state: SetState, broker_name: str) -> ReplicasInfo:
    """The set for 1006. A member that is in sync but not alive has no address."""
    members, master = state.members, state.master
    in_sync = state.in_sync or _NO_SET

    def identity(member_id: int) -> ReplicaIdentity:
        member = members.get(member_id)
        return ReplicaIdentity(
            broker_name, member_id, member.address if member else "", alive=member is not None
        )

    return ReplicasInfo(
        master_broker_id=master.member_id if master else None,
        master_address=master.address if master else None,
        master_epoch=state.epoch,
        sync_state_set_epoch=in_sync.version,
        in_sync_replicas=[identity(each) for each in in_sync.members],
        not_in_sync_replicas=[identity(each) for each in members if each not in in_sync.members],
    )


def failover_keys(control: FailoverControl) -> dict[str, str]:
    """What a member adds to its runtime information; nothing before etcd has answered."""
    state = control.state
    if not state.is_known:
        return {}
    master = state.master
    return FailoverStatus(
        member_id=control.member_id,
        # A master that goes on without etcd has no key there.
        master=control.member_id if control.is_master else master.member_id if master else None,
        epoch=state.epoch,
        in_sync=(state.in_sync or _NO_SET).members,
        alive=tuple(state.members),
        joined=state.last_member,
        min_in_sync=control.min_in_sync,
        etcd=tuple(EtcdMember(each.address, each.version, each.error or "") for each in control.etcd_members),
    ).to_keys()
