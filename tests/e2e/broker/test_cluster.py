"""The in-process cluster of the test kit: a message goes in and comes out, again after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.embed import BrokerHooks, SendContext
from kourou.errors import RequestError
from kourou.protocol.bodies import TopicRouteData, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
)
from kourou.protocol.record import decode_records
from kourou.testing.cluster import Cluster, cluster

pytestmark = pytest.mark.e2e

TOPIC = "TopicTest"


def send_command(body: bytes) -> RemotingCommand:
    header = SendMessageRequestHeader(
        producer_group="p",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="",
    )
    return RemotingCommand.request(RequestCode.SEND_MESSAGE, header, body)


def pull_command() -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


async def bodies(running: Cluster) -> list[bytes]:
    answer = await running.client.call(running.broker.address, pull_command())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in decode_records(answer.body)]


async def test_a_message_goes_in_and_comes_out_again_after_a_restart(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        answer = await running.client.call(running.broker.address, send_command(b"one"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert await bodies(running) == [b"one"]
    async with cluster(tmp_path) as running:
        assert await bodies(running) == [b"one"]


async def test_the_name_server_knows_a_new_topic_of_every_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as running:
        for broker in running.brokers:
            await running.client.call(broker.address, send_command(b"x"))
        header = GetRouteInfoRequestHeader(topic="broker-b")
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = await running.client.call(running.namesrv_addr, command)
        route = decode_body(answer.body, TopicRouteData)
        assert [data.broker_addrs for data in route.broker_datas] == [{0: running.brokers[1].address}]


async def test_settings_reach_the_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path, auto_create_topic_enable=False) as running:
        answer = await running.client.call(running.broker.address, send_command(b"x"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_hook_looks_at_each_message_and_may_refuse_it(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def look(context: SendContext) -> None:
        seen.append(context.body)
        if context.body == b"bad":
            raise RequestError(ResponseCode.NO_PERMISSION, "not this one")

    hooks = BrokerHooks(before_send=[look])
    async with cluster(tmp_path, hooks=hooks) as running:
        assert (await running.client.call(running.broker.address, send_command(b"good"))).code == 0
        answer = await running.client.call(running.broker.address, send_command(b"bad"))
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not this one")
        assert seen == [b"good", b"bad"]
        assert await bodies(running) == [b"good"]
