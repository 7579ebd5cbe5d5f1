"""What a member answers about its set, and which handovers it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kourou.errors import RequestError
from kourou.etcd.client import MemberStatus
from kourou.failover.requests import check_handover, failover_keys, replicas_info
from kourou.failover.set_state import SetState
from kourou.protocol.codes import ResponseCode
from kourou.protocol.failover_status import EtcdMember, FailoverStatus
from kourou.protocol.headers.controller import PromiseRequestHeader

from .set_values import KEYS, address_of, set_state


@dataclass
class Control:
    """A member that hands over nothing."""

    state: SetState = field(default_factory=set_state)
    member_id: int = 2
    min_in_sync: int = 2
    is_master: bool = False
    etcd_members: list[MemberStatus] = field(default_factory=list)

    def promise(self, header: PromiseRequestHeader) -> int:
        raise NotImplementedError

    async def hand_over(self, target: int | None) -> int:
        raise NotImplementedError


def test_a_member_in_sync_that_is_not_alive_is_listed_without_address() -> None:
    info = replicas_info(set_state(in_sync=(1, 4), alive=(1, 3)), "broker-a")
    assert (info.master_broker_id, info.master_address) == (1, address_of(1))
    assert (info.master_epoch, info.sync_state_set_epoch) == (7, 4)
    assert [(each.broker_id, each.broker_address, each.alive) for each in info.in_sync_replicas] == [
        (1, address_of(1), True),
        (4, "", False),
    ]
    assert [each.broker_id for each in info.not_in_sync_replicas] == [3]


def test_between_two_masters_the_epoch_is_that_of_the_last() -> None:
    info = replicas_info(set_state(master=None), "broker-a")
    assert (info.master_broker_id, info.master_address, info.master_epoch) == (None, None, 7)


@pytest.mark.parametrize(
    ("state", "own_id", "target", "code", "reason"),
    [
        (set_state(master=None), 1, 2, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, "no master at present"),
        (set_state(), 2, 2, ResponseCode.CONTROLLER_NOT_LEADER, f"member 1 at {address_of(1)}"),
        (set_state(), 1, 4, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "member 4 is not alive"),
        (set_state(), 1, 1, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, "member 1 is the master already"),
        (set_state(), 1, 3, ResponseCode.CONTROLLER_INVALID_REPLICAS, "in sync: 1, 2"),
        (set_state(alive=(1, 3)), 1, None, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "2 members alive"),
    ],
)
def test_what_cannot_be_handed_over_is_refused_with_the_reason(
    state: SetState, own_id: int, target: int | None, code: ResponseCode, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        check_handover(state, own_id, target)
    assert caught.value.response_code == code


@pytest.mark.parametrize("target", [2, None])
def test_the_master_hands_over_to_a_living_member_in_sync(target: int | None) -> None:
    assert check_handover(set_state(), 1, target).member_id == 1


def test_the_runtime_keys_carry_the_whole_status() -> None:
    etcd = [
        MemberStatus("h:1", version="3.5.16", has_leader=True),
        MemberStatus("h:2", error="no answer; gone"),
    ]
    status = FailoverStatus.of(failover_keys(Control(etcd_members=etcd)))
    assert status == FailoverStatus(
        member_id=2,
        master=1,
        epoch=7,
        in_sync=(1, 2),
        alive=(1, 2, 3),
        joined=3,
        min_in_sync=2,
        etcd=(EtcdMember("h:1", "3.5.16"), EtcdMember("h:2", "", "no answer, gone")),
    )
    assert status is not None and not status.is_master


def test_a_set_without_master_and_without_etcd_is_reported_as_such() -> None:
    state = set_state(master=None, in_sync=(), alive=())
    status = FailoverStatus.of(failover_keys(Control(state)))
    assert status is not None
    assert (status.master, status.in_sync, status.alive, status.etcd) == (None, (), (), ())


def test_no_keys_before_etcd_has_answered_and_none_of_other_brokers() -> None:
    assert failover_keys(Control(SetState(KEYS))) == {}
    assert FailoverStatus.of({"brokerActive": "true"}) is None
