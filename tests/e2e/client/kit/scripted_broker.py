"""A name server and broker in one that answers sends as a test tells it to: statuses and answers that a
sound broker gives seldom or never."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from kourou.protocol.bodies import BrokerData, QueueData, TopicRouteData
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.namesrv import GetRouteInfoRequestHeader
from kourou.transport.request import Processor, Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import RemotingServerConfig

SENT = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "5"}
Answer = Callable[[Request], None]


class ScriptedBroker:
    """Every send is answered by `answers`, one after the other, the last one again and again."""

    def __init__(self, answers: list[Answer], others: Mapping[int, Processor]) -> None:
        self.answers = answers
        self.sends: list[Request] = []
        self.other: list[Request] = []
        processors: dict[int, Processor] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.SEND_MESSAGE_V2: self._sent,
            RequestCode.SEND_BATCH_MESSAGE: self._sent,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._sent,
            RequestCode.HEART_BEAT: lambda request: request.reply(),
            RequestCode.UNREGISTER_CLIENT: lambda request: request.reply(),
        }
        self.server = RemotingServer({**processors, **others}, RemotingServerConfig())

    @property
    def address(self) -> str:
        return self.server.address

    def _route(self, request: Request) -> None:
        header = request.header(GetRouteInfoRequestHeader)
        if header.topic == "NoTopic":
            request.error(17, "no such topic")
            return
        route = TopicRouteData(
            queue_datas=[QueueData(broker_name="scripted", read_queue_nums=2, write_queue_nums=2, perm=6)],
            broker_datas=[BrokerData("DefaultCluster", "scripted", {0: self.address})],
        )
        request.reply(body=route.encode())

    def _sent(self, request: Request) -> None:
        self.sends.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer(request)


@contextlib.asynccontextmanager
async def scripted(
    *answers: Answer, others: Mapping[int, Processor] | None = None
) -> AsyncIterator[ScriptedBroker]:
    """Run one."""
    broker = ScriptedBroker(list(answers), others or {})
    await broker.server.start()
    try:
        yield broker
    finally:
        await broker.server.stop(timeout_ms=100)


def stored(code: int = 0, **fields: str) -> Answer:
    """An answer that says that the message is stored."""
    return lambda request: request.reply({**SENT, **fields}, code=code)


def refused(code: int, remark: str = "no") -> Answer:
    """An answer that says that it is not."""
    return lambda request: request.error(code, remark)


def silent(request: Request) -> None:
    """No answer."""
