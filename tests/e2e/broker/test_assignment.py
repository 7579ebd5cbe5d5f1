"""Queues that brokers assign: 400 over two brokers, 401 and 402, and the modes of a slave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.pop.assignment_processor import AssignmentPart
from kourou.broker.registration.topic_routes import TopicRoutes
from kourou.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    TopicConfig,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient
from tests.e2e.broker.broker_kit import Peer, running
from tests.e2e.broker.replication_kit import namesrv, pair

pytestmark = pytest.mark.e2e

TOPIC, GROUP = "Orders", "OrderService"
PULL, POP = MessageRequestMode.PULL, MessageRequestMode.POP


class Member:
    """A client with a connection of its own to each broker, as consumers have."""

    def __init__(self, client_id: str, peers: tuple[Peer, ...]) -> None:
        self.client_id = client_id
        self._peers = peers
        self._client = RemotingClient()

    async def heartbeat(self) -> None:
        consumer = ConsumerData(
            group_name=GROUP,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
        )
        body = encode_body(HeartbeatData(client_id=self.client_id, consumer_data_set=[consumer]))
        for peer in self._peers:
            command = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
            assert (await self._client.call(peer.controller.address, command, 5_000)).code == 0

    async def stop(self) -> None:
        await self._client.stop()


async def assigned(peer: Peer, client_id: str = "c1", **fields: Any) -> Any:
    """The answer as `{broker and queue id: mode}`; None: without a list."""
    body = QueryAssignmentRequestBody(
        **{
            "topic": TOPIC,
            "consumer_group": GROUP,
            "client_id": client_id,
            "strategy_name": "AVG",
            "message_model": MessageModel.CLUSTERING,
            **fields,
        }
    )
    answer = await peer.call(RequestCode.QUERY_ASSIGNMENT, body=encode_body(body))
    assert answer.code == 0, answer.remark
    found = decode_body(answer.body, QueryAssignmentResponseBody).message_queue_assignments
    if found is None:
        return None
    assert all(each.message_queue is not None and each.message_queue.topic == TOPIC for each in found)
    return {f"{each.message_queue.broker_name}/{each.message_queue.queue_id}": each.mode for each in found}  # type: ignore[union-attr]


async def set_mode(peer: Peer, topic: str = TOPIC, group: str = GROUP, **fields: Any) -> RemotingCommand:
    body = SetMessageRequestModeRequestBody(topic, group, **{"mode": POP, **fields})
    return await peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=encode_body(body))


async def all_modes(peer: Peer) -> dict[str, dict[str, SetMessageRequestModeRequestBody]]:
    answer = await peer.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    return decode_body(answer.body, MessageRequestModeSerializeWrapper).message_request_mode_map


@contextlib.asynccontextmanager
async def two_brokers(root: Path, **keys: Any) -> AsyncIterator[tuple[Peer, Peer]]:
    async with (
        namesrv() as address,
        running(root / "a", namesrv_addr=address, **keys) as first,
        running(root / "b", broker_name="broker-b", namesrv_addr=address, **keys) as second,
    ):
        for peer in (first, second):
            peer.controller.services.topics.update(
                TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
            )
            peer.controller.services.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        yield first, second


@contextlib.asynccontextmanager
async def members(*client_ids: str, of: tuple[Peer, ...]) -> AsyncIterator[None]:
    made = [Member(client_id, of) for client_id in client_ids]
    try:
        for member in made:
            await member.heartbeat()
        yield
    finally:
        for member in made:
            await member.stop()


def routes_of(peer: Peer) -> TopicRoutes:
    (part,) = (part for part in peer.controller._open.running.parts if isinstance(part, AssignmentPart))
    return part.routes


async def eventually(peer: Peer, count: int) -> None:
    """Wait until the broker knows so many queues of the topic."""
    async with asyncio.timeout(10):
        while len(await assigned(peer, message_model=MessageModel.BROADCASTING) or ()) < count:
            await asyncio.sleep(0.02)
            await routes_of(peer).refresh()


async def test_two_brokers_assign_all_queues(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as peers, members("c1", "c2", of=peers):
        for peer in peers:
            await eventually(peer, 4)
            assert await assigned(peer, "c1") == {"broker-a/0": PULL, "broker-a/1": PULL}
            assert await assigned(peer, "c2") == {"broker-b/0": PULL, "broker-b/1": PULL}
            assert await assigned(peer, "c1", strategy_name="AVG_BY_CIRCLE") == {
                "broker-a/0": PULL,
                "broker-b/0": PULL,
            }
            assert (await set_mode(peer)).code == 0
            for client_id in ("c1", "c2"):
                assert await assigned(peer, client_id) == {"broker-a/-1": POP, "broker-b/-1": POP}
            assert (await set_mode(peer, mode=PULL)).code == 0
            assert await assigned(peer, "c1") == {"broker-a/0": PULL, "broker-a/1": PULL}


async def test_what_has_no_answer_changes_nothing_at_the_client(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (first, second):
        await eventually(first, 4)
        assert await assigned(first) is None, "no member of the group"
        async with members("c1", of=(first, second)):
            assert len(await assigned(first)) == 4
            assert await assigned(first, topic="Nowhere") is None
            assert await assigned(first, strategy_name="CONFIG") is None
            assert await assigned(first, strategy_name=None) is None
            assert await assigned(first, "c9") == {}, "not a member: it is to drop what it has"


async def test_a_request_without_a_model_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        body = encode_body(QueryAssignmentRequestBody(topic=TOPIC, consumer_group=GROUP, client_id="c"))
        answer = await peer.call(RequestCode.QUERY_ASSIGNMENT, body=body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "messageModel" in (answer.remark or "")


async def test_without_name_servers_there_is_no_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        assert await assigned(peer) is None


async def test_a_known_route_counts_while_the_name_server_is_away(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as broker_end:
        async with namesrv() as address:
            keys = {"load_balance_poll_name_server_interval": 100}
            peer = await broker_end.enter_async_context(running(tmp_path, namesrv_addr=address, **keys))
            await peer.send(TOPIC)
            await eventually(peer, 4)
        await routes_of(peer).refresh()
        assert len(await assigned(peer, message_model=MessageModel.BROADCASTING)) == 4


async def test_the_configuration_sets_the_default(tmp_path: Path) -> None:
    keys = {"default_message_request_mode": "POP", "default_pop_share_queue_num": 1}
    async with two_brokers(tmp_path, **keys) as (first, second):
        await eventually(first, 4)
        async with members("c1", "c2", "c3", of=(first, second)):
            assert await assigned(first, "c3") == {
                "broker-a/0": POP,
                "broker-a/1": POP,
                "broker-b/1": POP,
            }
            first.controller.services.update_config({"serverLoadBalancerEnable": "false"})
            assert len(await assigned(first, "c3")) == 4


async def test_retry_topics_are_pulled(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, default_message_request_mode="POP") as (first, _):
        retry = f"%RETRY%{GROUP}"
        first.controller.services.topics.update(
            TopicConfig(topic_name=retry, read_queue_nums=1, write_queue_nums=1)
        )
        assert (await set_mode(first, retry)).code == ResponseCode.NO_PERMISSION
        assert first.controller.services.request_modes.get(retry, GROUP).mode is PULL
        assert first.controller.services.request_modes.get(TOPIC, GROUP).mode is POP


async def test_modes_need_topic_and_group(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create_subscription_group=False) as peer:
        await peer.send(TOPIC)
        assert (await set_mode(peer, "Nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await set_mode(peer)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await all_modes(peer) == {}


async def test_modes_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(TOPIC)
        assert (await set_mode(peer, pop_share_queue_num=3)).code == 0
    async with running(tmp_path) as peer:
        expected = SetMessageRequestModeRequestBody(TOPIC, GROUP, POP, 3)
        assert await all_modes(peer) == {TOPIC: {GROUP: expected}}


async def test_a_slave_has_the_modes_of_its_master_and_refuses_others(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        await of_master.send(TOPIC)
        assert (await set_mode(of_master)).code == 0
        slave = of_slave.controller._open.running.slave
        assert slave is not None
        await slave.copy_tables()
        assert await all_modes(of_slave) == await all_modes(of_master) != {}
        refused = await set_mode(of_slave, mode=PULL)
        assert refused.code == ResponseCode.SYSTEM_ERROR and "slave" in (refused.remark or "")
