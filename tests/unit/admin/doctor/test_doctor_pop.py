"""What doctor says of groups that pop: their queues have a consumer, and masters must agree on the mode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kourou.admin.doctor import checks_groups
from kourou.admin.doctor.checks_groups import check_consume_modes, check_unheld_queues
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot, GroupView, Member
from kourou.admin.running_info import RunningInfo
from kourou.admin.session import Admin, BrokerAddress
from kourou.errors import ResponseError
from kourou.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    MessageQueue,
    MessageRequestMode,
    PopProcessQueueInfo,
    QueueData,
    SetMessageRequestModeRequestBody,
    SubscriptionData,
    TopicRouteData,
)
from kourou.protocol.codes import ResponseCode

TOPIC, GROUP = "Orders", "billing"
ROUTE = TopicRouteData(
    queue_datas=[
        QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
        for name in ("broker-a", "broker-b")
    ]
)


def snapshot() -> ClusterSnapshot:
    admin = cast(Admin, SimpleNamespace(namesrvs=("127.0.0.1:9876",)))
    brokers = [
        BrokerView(BrokerAddress("C", name, 0, f"{name}:10911"), {}, 0, 0)
        for name in ("broker-a", "broker-b", "broker-c")
    ]
    return ClusterSnapshot(admin, 0.0, brokers=brokers, routes={TOPIC: ROUTE})


def popping(*queues: MessageQueue) -> GroupView:
    info = ConsumerRunningInfo(
        subscription_set=[SubscriptionData(topic=TOPIC)],
        mq_pop_table={queue: PopProcessQueueInfo() for queue in queues},
    )
    connection = ConsumerConnection(
        consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=MessageModel.CLUSTERING
    )
    return GroupView(GROUP, connection, [Member(Connection(), RunningInfo.of(info))], None)


async def test_queues_that_a_member_pops_from_have_a_consumer() -> None:
    """Java's consumers call themselves push consumers, also if the broker lets them pop."""
    taken = snapshot()
    taken.groups = [popping(MessageQueue(TOPIC, "broker-a", -1), MessageQueue(TOPIC, "broker-b", 1))]
    (finding,) = await check_unheld_queues(taken)
    assert "not assigned: Orders broker-b/0;" in finding.what
    taken.groups = [popping(MessageQueue(TOPIC, "broker-a", -1), MessageQueue(TOPIC, "broker-b", -1))]
    assert await check_unheld_queues(taken) == []


async def modes_found(monkeypatch: pytest.MonkeyPatch, modes: dict[str, Any]) -> list[str]:
    async def consume_modes(_: Admin, address: str) -> dict[tuple[str, str], Any]:
        mode = modes[address.partition(":")[0]]
        if isinstance(mode, Exception):
            raise mode
        body = SetMessageRequestModeRequestBody(TOPIC, GROUP, mode or MessageRequestMode.PULL)
        return {(TOPIC, GROUP): body} if mode else {}

    monkeypatch.setattr(checks_groups, "consume_modes", consume_modes)
    return [f"{finding.where}: {finding.what}" for finding in await check_consume_modes(snapshot())]


POP, PULL = MessageRequestMode.POP, MessageRequestMode.PULL
OLD = ResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "", "")


@pytest.mark.parametrize(
    "modes",
    [
        {"broker-a": POP, "broker-b": POP, "broker-c": None},
        {"broker-a": PULL, "broker-b": OLD, "broker-c": OLD},
        {"broker-a": None, "broker-b": None, "broker-c": POP},
    ],
)
async def test_masters_that_agree(monkeypatch: pytest.MonkeyPatch, modes: dict[str, Any]) -> None:
    """broker-c does not have the topic."""
    assert await modes_found(monkeypatch, modes) == []


async def test_masters_with_different_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {"broker-a": POP, "broker-b": None, "broker-c": None}
    assert await modes_found(monkeypatch, modes) == [
        "group billing: how it reads Orders differs: POP at broker-a, not set at broker-b"
    ]
