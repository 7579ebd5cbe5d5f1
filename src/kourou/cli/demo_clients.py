"""The clients of the demo: a few lines over the protocol, no client library.

What they do is what every RocketMQ client does: ask the name server for the route, send to the
queues in turn, pull each queue from where the last pull ended and commit that with the next one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from kourou.errors import ResponseError
from kourou.protocol.bodies import ConsumeStats, TopicRouteData, TopicStatsTable, decode_body
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    GetConsumeStatsRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicStatsInfoRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
)
from kourou.protocol.record import record_positions
from kourou.transport.client import RemotingClient

# Where a topic that does not exist yet is sent to: brokers with it make the topic.
_DEFAULT_TOPIC: Final = "TBW102"
_ROUND_S: Final = 0.02
_SUSPEND_MS: Final = 1_000
_PULL_MAX: Final = 32
_BODY: Final = b"a message of the demo " * 10
_PULL_FLAGS: Final = int(PullSysFlag.COMMIT_OFFSET | PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION)


@dataclass(frozen=True)
class Flow:
    """One topic: how many messages go in each second, and the group that takes them out."""

    topic: str
    queues: int
    messages_per_s: int
    group: str
    # A pause after each message taken out, so that a group falls behind.
    pause_s: float = 0.0


@dataclass(frozen=True)
class Progress:
    """How far one flow has come, as the broker tells."""

    stored: int
    consumed: int

    @property
    def lag(self) -> int:
        """Messages that the group has not taken yet."""
        return self.stored - self.consumed


class DemoClient:
    """Talks to one cluster of one broker."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._remoting = RemotingClient()

    async def stop(self) -> None:
        """Close the connections."""
        await self._remoting.stop()

    async def call(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """An answer with success; any other is ResponseError."""
        answer = await self._remoting.call(address, command, timeout_ms=5_000)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", address)
        return answer

    async def broker_of(self, topic: str) -> str:
        """Where the topic is, or will be."""
        for name in (topic, _DEFAULT_TOPIC):
            header = GetRouteInfoRequestHeader(topic=name)
            command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            answer = await self._remoting.call(self._namesrv, command)
            if answer.code == ResponseCode.SUCCESS:
                return decode_body(answer.body, TopicRouteData).broker_datas[0].broker_addrs[0]
        raise ResponseError(answer.code, answer.remark or "", self._namesrv)

    # -- producing ---------------------------------------------------------------------------------

    async def produce(self, flow: Flow) -> None:
        """Send at the flow's rate, many at a time, until cancelled."""
        broker = await self.broker_of(flow.topic)
        started, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - started) * flow.messages_per_s) + 1
            await asyncio.gather(*(self._send(broker, flow, number) for number in range(sent, due)))
            sent = due
            await asyncio.sleep(_ROUND_S)

    async def _send(self, broker: str, flow: Flow, number: int) -> None:
        header = SendMessageRequestHeaderV2(
            producer_group="demo-producer",
            topic=flow.topic,
            default_topic=_DEFAULT_TOPIC,
            default_topic_queue_nums=flow.queues,
            queue_id=number % flow.queues,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties="",
        )
        await self.call(broker, RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, _BODY))

    # -- consuming ---------------------------------------------------------------------------------

    async def consume(self, flow: Flow, queue_id: int) -> None:
        """Take the messages of one queue until cancelled."""
        broker = await self.broker_of(flow.topic)
        queue_offset = 0
        while True:
            answer = await self._pull(broker, flow, queue_id, queue_offset)
            queue_offset = answer.header(PullMessageResponseHeader).next_begin_offset
            if answer.code == ResponseCode.SUCCESS:
                await asyncio.sleep(len(record_positions(answer.body)) * flow.pause_s)

    async def _pull(self, broker: str, flow: Flow, queue_id: int, queue_offset: int) -> RemotingCommand:
        header = PullMessageRequestHeader(
            consumer_group=flow.group,
            topic=flow.topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_msg_nums=_PULL_MAX,
            sys_flag=_PULL_FLAGS,
            # Asking for the next says that all before is done.
            commit_offset=queue_offset,
            suspend_timeout_millis=_SUSPEND_MS,
            subscription="*",
            sub_version=0,
        )
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        # Nothing new is no error: the broker has held the request for as long as it was told.
        return await self._remoting.call(broker, command, timeout_ms=_SUSPEND_MS + 5_000)

    # -- looking -----------------------------------------------------------------------------------

    async def knows(self, broker: str, flow: Flow) -> bool:
        """Whether the broker has the topic."""
        header = GetTopicStatsInfoRequestHeader(topic=flow.topic)
        command = RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, header)
        return (await self._remoting.call(broker, command)).code == ResponseCode.SUCCESS

    async def progress(self, broker: str, flow: Flow) -> Progress:
        """How far the flow has come."""
        topic = GetTopicStatsInfoRequestHeader(topic=flow.topic)
        answer = await self.call(broker, RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, topic))
        queues = decode_body(answer.body, TopicStatsTable).offset_table.values()
        group = GetConsumeStatsRequestHeader(consumer_group=flow.group, topic=flow.topic)
        answer = await self.call(broker, RemotingCommand.request(RequestCode.GET_CONSUME_STATS, group))
        taken = decode_body(answer.body, ConsumeStats).offset_table.values()
        return Progress(sum(queue.max_offset for queue in queues), sum(one.consumer_offset for one in taken))
