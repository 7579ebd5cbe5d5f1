"""Heartbeat and NotifyClientTermination: brokers know the clients of a proxy as they know their own.

A client is registered at every broker of its topics, over its own links: a producer in one group for each of
its topics, named like the topic; a consumer in its group. So brokers list it, check its transactions and
send it what tools want of it. A broker forgets it with the link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.proxy.clients.client_settings import ClientSettings
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.registry import ClientRegistry
from kourou.proxy.http2.call import Call, Handler
from kourou.proxy.links.broker_link import BrokerLink, Brokers
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.service.handlers import HandlerMaker, path_of
from kourou.proxy.wire.rocketmq_v2 import (
    ClientType,
    Code,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_MS: Final = 3_000
# Others receive from brokers by themselves, message by message.
_PASSIVE: Final = frozenset({ClientType.PUSH_CONSUMER, ClientType.CLIENT_TYPE_UNSPECIFIED})


class Registrations:
    """What brokers know of the clients."""

    def __init__(self, brokers: Brokers, tasks: TaskOwner) -> None:
        self._brokers = brokers
        self._tasks = tasks
        self._registering: set[ProxyClient] = set()

    def register_soon(self, client: ProxyClient) -> None:
        """Register a client without waiting; what brokers refuse is logged."""
        if client not in self._registering:
            self._registering.add(client)
            self._tasks.start(self._register_logged(client), f"register {client.client_id}")

    async def _register_logged(self, client: ProxyClient) -> None:
        try:
            await self.register(client)
        except KourouError as error:
            _log.warning("%s is not registered: %s", client, error)
        finally:
            self._registering.discard(client)

    async def register(self, client: ProxyClient) -> None:
        """Register a client at all brokers of its topics. ResponseError: one refuses it. A broker that does
        not answer is passed over: it gets the next heartbeat."""
        settings = client.settings
        if settings is None:
            return
        body = _body_of(client, settings)
        names = await self._broker_names(settings)
        calls = [
            client.link(name).call_nowait(_heartbeat(body, settings), HEARTBEAT_TIMEOUT_MS) for name in names
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, KourouError):
                _log.info("heartbeat of %s to broker %s: %s", client, name, answer)
            elif isinstance(answer, BaseException):
                raise answer
            elif answer.code != ResponseCode.SUCCESS:
                raise ResponseError(answer.code, answer.remark or "", name)

    def register_at(self, client: ProxyClient, link: BrokerLink) -> None:
        """Register a client over a new connection, before anything else is sent over it; unless it is being
        registered everywhere, for which the connection may have been made."""
        if client.settings is not None and client not in self._registering:
            command = _heartbeat(_body_of(client, client.settings), client.settings)
            link.call_nowait(command, HEARTBEAT_TIMEOUT_MS).add_done_callback(_ignore)

    async def _broker_names(self, settings: ClientSettings) -> list[str]:
        names: dict[str, None] = {}
        for topic in settings.topics or settings.subscriptions:
            try:
                route = await self._brokers.route(topic)
            except KourouError as error:
                _log.info("no heartbeat to the brokers of topic %s: %s", topic, error)
                continue
            names |= dict.fromkeys(queues.broker_name for queues in route.queue_datas)
        return list(names)


def _body_of(client: ProxyClient, settings: ClientSettings) -> bytes:
    known = client.heartbeat
    if known is None or known[0] is not settings:
        known = client.heartbeat = settings, heartbeat_body(client.client_id, settings)
    return known[1]


def heartbeat_body(client_id: str, settings: ClientSettings) -> bytes:
    """A client's settings as brokers know them."""
    if not settings.is_consumer:
        producers = [ProducerData(group_name=topic) for topic in settings.topics]
        return encode_body(HeartbeatData(client_id=client_id, producer_data_set=producers))
    is_passive = settings.client_type in _PASSIVE
    consumer = ConsumerData(
        group_name=settings.group,
        consume_type=ConsumeType.CONSUME_PASSIVELY if is_passive else ConsumeType.CONSUME_ACTIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=list(settings.subscriptions.values()),
    )
    return encode_body(HeartbeatData(client_id=client_id, consumer_data_set=[consumer]))


def _heartbeat(body: bytes, settings: ClientSettings) -> RemotingCommand:
    command = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
    # Tools list it with the client.
    command.language = settings.language
    return command


def _ignore(answer: asyncio.Future[RemotingCommand]) -> None:
    if not answer.cancelled():
        answer.exception()


class Heartbeats:
    """The RPCs of clients that live and leave."""

    def __init__(self, clients: ClientRegistry, registrations: Registrations) -> None:
        self._clients = clients
        self._registrations = registrations

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Their handlers, by path."""
        return {
            path_of("Heartbeat"): make.by_coroutine(HeartbeatRequest, HeartbeatResponse, self.heartbeat),
            path_of("NotifyClientTermination"): make.by_coroutine(
                NotifyClientTerminationRequest, NotifyClientTerminationResponse, self.terminate
            ),
        }

    async def heartbeat(
        self, client: ProxyClient, request: HeartbeatRequest, call: Call
    ) -> HeartbeatResponse:
        """Heartbeat."""
        known_settings(client)
        await self._registrations.register(client)
        return HeartbeatResponse(status=make_status(Code.OK))

    async def terminate(
        self, client: ProxyClient, request: NotifyClientTerminationRequest, call: Call
    ) -> NotifyClientTerminationResponse:
        """NotifyClientTermination."""
        self._clients.leave(client, "it has terminated")
        return NotifyClientTerminationResponse(status=make_status(Code.OK))


def known_settings(client: ProxyClient) -> ClientSettings:
    """The settings of a client. StatusError: it has not sent any, or this proxy has been restarted."""
    if client.settings is None:
        raise StatusError(
            Code.UNRECOGNIZED_CLIENT_TYPE,
            f"client {client.client_id} has not sent its settings; they come first, over Telemetry",
        )
    return client.settings
