"""A proxy's services between calls of tests and brokers whose answers tests give: both are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kourou.access.model import Account, Needs
from kourou.errors import NoRouteError
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.proxy.clients.client_settings import GroupRules, read_settings
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.registry import CLIENT_ID, ClientRegistry
from kourou.proxy.http2.call import Call, GrpcCode, Handler
from kourou.proxy.links.broker_link import BrokerLink
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.service.handlers import HandlerMaker, path_of
from kourou.proxy.wire.rocketmq_v2 import (
    METHODS,
    ClientType,
    Code,
    FilterExpression,
    FilterType,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from kourou.transport.pending_calls import AnswerSink
from kourou.transport.request import Request
from kourou.transport.tasks import TaskOwner

PEER = "10.0.0.7:4711"


class RecordedCall(Call):
    """A call of a test."""

    def __init__(
        self,
        method: str,
        request: Any = None,
        *,
        client_id: str = "c1",
        peer: str = PEER,
        timeout_s: float | None = None,
        **metadata: str,
    ) -> None:
        self.path = path_of(method)
        self.peer = peer
        self.authority, self.is_tls = "proxy.test:8081", False
        self.metadata = {CLIENT_ID: client_id} | {
            name.replace("_", "-"): text for name, text in metadata.items()
        }
        if not client_id:
            del self.metadata[CLIENT_ID]
        self.deadline_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        self.request = (
            request if isinstance(request, bytes) else b"" if request is None else request.SerializeToString()
        )
        self.is_over = False
        self.on_message = self.on_half_close = self.on_end = self.on_unsent = None
        self.sent: list[bytes] = []
        self.status: GrpcCode | None = None
        self.text = ""
        self.unsent = 0

    @property
    def unsent_bytes(self) -> int:
        return self.unsent

    def reply(self, message: bytes) -> None:
        self.send(message)
        self.finish()

    def send(self, message: bytes) -> None:
        if not self.is_over:
            self.sent.append(message)

    def finish(self) -> None:
        self._end(GrpcCode.OK, "")

    def fail(self, code: GrpcCode, text: str) -> None:
        self._end(code, text)

    def _end(self, code: GrpcCode, text: str) -> None:
        if not self.is_over:
            self.is_over, self.status, self.text = True, code, text

    def cancel(self) -> None:
        """The client gives up."""
        self.is_over = True
        if self.on_end is not None:
            self.on_end()

    @property
    def responses(self) -> list[Any]:
        """What was sent, as messages."""
        response_type = METHODS[self.path].response
        return [response_type.FromString(each) for each in self.sent]

    @property
    def response(self) -> Any:
        """The one response."""
        (response,) = self.responses
        return response


class RecordedLink:
    """A link to a broker of a test."""

    def __init__(self, brokers: RecordedBrokers, broker_name: str) -> None:
        self._brokers = brokers
        self.broker_name = broker_name

    def call_nowait(self, command: RemotingCommand, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        sink = _FutureSink(future)
        self.call_into(command, timeout_ms, sink)
        return future

    def call_into(self, command: RemotingCommand, timeout_ms: int, sink: AnswerSink) -> None:
        sent = SentRequest(self.broker_name, command, timeout_ms, sink)
        self._brokers.sent.append(sent)
        answer = self._brokers.answers.get(command.code)
        if answer is not None:
            sent.answer(answer(sent))

    def send_oneway(self, command: RemotingCommand) -> None:
        self._brokers.sent.append(SentRequest(self.broker_name, command, 0, None))


class _FutureSink:
    def __init__(self, future: asyncio.Future[RemotingCommand]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def set_answer(self, head: CommandHead, body: bytes, /) -> None:
        fields = head.ext_fields if isinstance(head.ext_fields, dict) else {}
        self._future.set_result(
            RemotingCommand(head.code, remark=head.remark, ext_fields=dict(fields), body=body)
        )

    def set_exception(self, error: Exception, /) -> None:
        self._future.set_exception(error)


class SentRequest:
    """One request to a broker."""

    def __init__(
        self, broker_name: str, command: RemotingCommand, timeout_ms: int, sink: AnswerSink | None
    ) -> None:
        self.broker_name = broker_name
        self.command = command
        self.code = command.code
        self.fields: Mapping[str, str] = command.ext_fields or {}
        self.timeout_ms = timeout_ms
        self._sink = sink

    def answer(self, answer: RemotingCommand | Exception) -> None:
        """Answer it."""
        assert self._sink is not None
        if isinstance(answer, Exception):
            self._sink.set_exception(answer)
        else:
            head = CommandHead(code=answer.code, remark=answer.remark, ext_fields=answer.ext_fields or {})
            self._sink.set_answer(head, answer.body)


class RecordedBrokers:
    """Brokers of a test: `answers` has, by request code, what answers; requests of other codes wait."""

    def __init__(self) -> None:
        self.sent: list[SentRequest] = []
        self.answers: dict[int, Callable[[SentRequest], RemotingCommand | Exception]] = {}
        self.routes: dict[str, list[str]] = {"T": ["broker-a"]}
        self.groups: dict[str, SubscriptionGroupConfig | Exception] = {}
        self.topics: dict[str, TopicConfig | Exception] = {}
        self.is_known = False
        """Whether routes and topics are known without waiting."""
        self.closed: list[str] = []
        self.accounts: list[Account | None] = []
        self.on_request: Callable[[Request], None] | None = None
        self.on_connect: Callable[[BrokerLink], None] | None = None

    def requests(self, code: int) -> list[SentRequest]:
        """The requests with that code."""
        return [each for each in self.sent if each.code == code]

    def say(self, code: int, answer_code: int = 0, remark: str = "", **fields: object) -> None:
        """Answer all requests with `code` like this."""
        texts = {name: str(value) for name, value in fields.items()}
        self.answers[code] = lambda _: RemotingCommand(answer_code, remark=remark, ext_fields=texts)

    async def route(self, topic: str) -> TopicRouteData:
        if topic not in self.routes:
            raise NoRouteError(topic, "there is no such topic")
        return self._route(topic)

    def known_route(self, topic: str) -> TopicRouteData | None:
        return self._route(topic) if self.is_known and topic in self.routes else None

    def _route(self, topic: str) -> TopicRouteData:
        return TopicRouteData(
            queue_datas=[QueueData(name, 4, 4, 6) for name in self.routes[topic]],
            broker_datas=[BrokerData("c", name, {0: f"{name}:10911"}) for name in self.routes[topic]],
        )

    async def topic_config(self, topic: str) -> TopicConfig | None:
        config = self.topics.get(topic)
        if isinstance(config, Exception):
            raise config
        return config

    def known_topic_config(self, topic: str) -> TopicConfig | None:
        config = self.topics.get(topic)
        return config if self.is_known and isinstance(config, TopicConfig) else None

    async def group_config(self, topic: str, group: str) -> SubscriptionGroupConfig | None:
        config = self.groups.get(group)
        if isinstance(config, Exception):
            raise config
        return config

    def links_of(
        self,
        client_id: str,
        account: Account | None,
        peer: str,
        on_request: Callable[[Request], None],
        *,
        on_connect: Callable[[BrokerLink], None] | None = None,
    ) -> RecordedLinks:
        self.accounts.append(account)
        self.on_request, self.on_connect = on_request, on_connect
        return RecordedLinks(self, client_id)


class RecordedLinks:
    """The links of one client."""

    def __init__(self, brokers: RecordedBrokers, client_id: str) -> None:
        self._brokers = brokers
        self._client_id = client_id

    def link(self, broker_name: str) -> RecordedLink:
        return RecordedLink(self._brokers, broker_name)

    async def close(self) -> None:
        self._brokers.closed.append(self._client_id)


class OpenAccess:
    """Access for all: `account` is the one of every call, until logins are `refused`."""

    def __init__(self) -> None:
        self.account: Account | None = None
        self.refused = False
        self.checked: list[Needs] = []

    def login(self, call: Call) -> Account | None:
        if self.refused:
            raise StatusError(Code.UNAUTHORIZED, "unknown user")
        return self.account

    def check(self, call: Call, needs: Needs) -> None:
        self.checked.append(needs)


class ProxyKit:
    """The parts that all services share."""

    def __init__(self) -> None:
        self.brokers = RecordedBrokers()
        self.access = OpenAccess()
        self.tasks = TaskOwner("test")
        self.clients = ClientRegistry(self.brokers, self.access, self.tasks)
        self.make = HandlerMaker(self.clients, self.tasks)

    def client(self, settings: Settings | None = None, **rules: object) -> ProxyClient:
        """The client of id c1, with settings."""
        client = self.clients.of(RecordedCall("Heartbeat"))
        if settings is not None:
            client.settings = read_settings(settings)
            if client.settings.is_consumer:
                config = SubscriptionGroupConfig(**rules)  # type: ignore[arg-type]
                client.rules = GroupRules.of(client.settings.group, config)
        return client

    async def call(self, handlers: Mapping[str, Handler], call: RecordedCall) -> RecordedCall:
        """Make a call, and let run what it starts."""
        handlers[call.path](call)
        await settle()
        return call

    async def stop(self) -> None:
        """End what runs."""
        await self.clients.stop()
        await self.tasks.stop()


async def settle() -> None:
    """Let all callbacks run that are due."""
    for _ in range(10):
        await asyncio.sleep(0)


def consumer_settings(
    *topics: str,
    group: str = "g",
    client_type: int = ClientType.PUSH_CONSUMER,
    expression: str = "*",
    filter_type: int = FilterType.TAG,
) -> Settings:
    """Settings as a consumer sends them."""
    entry = partial(SubscriptionEntry, expression=FilterExpression(type=filter_type, expression=expression))
    subscriptions = [entry(topic=Resource(name=topic)) for topic in topics or ("T",)]
    settings = Settings(
        client_type=client_type,
        subscription=Subscription(group=Resource(name=group), subscriptions=subscriptions),
    )
    settings.request_timeout.seconds = 3
    return settings


def producer_settings(*topics: str) -> Settings:
    """Settings as a producer sends them."""
    return Settings(
        client_type=ClientType.PRODUCER,
        publishing=Publishing(topics=[Resource(name=topic) for topic in topics]),
    )
