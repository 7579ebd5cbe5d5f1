"""What services use of the ways to brokers.

Each gRPC client has links of its own: the broker sees its address, registers it by heartbeats over them, and
its requests to that client come back over them. Requests over a link are signed with the keys of the
client's account, and decided by the gate of the broker.
Not here: how a link connects (client_links.py), which brokers there are (cluster.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kourou.access.model import Account
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicRouteData
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.command import RemotingCommand
from kourou.transport.pending_calls import AnswerSink
from kourou.transport.request import Request


class BrokerLink(Protocol):
    """One client's way to one broker: to its master, wherever that is now."""

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        ...

    def call_nowait(self, command: RemotingCommand, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """Sign and send a request, over a new connection if there is none. The future gets the response,
        whatever its code, or a RemotingError; this method raises nothing. The command is the link's from here
        on."""
        ...

    def call_into(self, command: RemotingCommand, timeout_ms: int, sink: AnswerSink) -> None:
        """The same for the hot path, without a future: the sink gets the head and body of the response, or
        the error, in the iteration of the loop in which they arrive; the error may come before this returns.
        A sink never raises."""
        ...

    def send_oneway(self, command: RemotingCommand) -> None:
        """Sign and send a request without a response; dropped where the broker cannot be reached."""
        ...


class ClientLinks(Protocol):
    """The links of one client, made when they are first used."""

    def link(self, broker_name: str) -> BrokerLink:
        """The link to a broker; the same object each time."""
        ...

    async def close(self) -> None:
        """Close all connections; calls that wait fail with ConnectionLostError. May be called twice."""
        ...


class Brokers(Protocol):
    """The brokers that a proxy serves, and what they say of topics and groups."""

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic, at most some seconds old. NoRouteError: there is none; NoNameServerError."""
        ...

    def known_route(self, topic: str) -> TopicRouteData | None:
        """The same without waiting, for the hot path; None: not known, or too old."""
        ...

    async def topic_config(self, topic: str) -> TopicConfig | None:
        """What a broker of the route has stored of a topic, its attributes among it, at most some seconds
        old; None: nothing. It is read with the proxy's own account. The errors of `route`, RemotingError,
        ResponseError."""
        ...

    def known_topic_config(self, topic: str) -> TopicConfig | None:
        """The same without waiting; None: not known, or too old."""
        ...

    async def group_config(self, topic: str, group: str) -> SubscriptionGroupConfig | None:
        """What a broker of the topic has stored of a group, at most some seconds old; None: nothing."""
        ...

    def links_of(
        self,
        client_id: str,
        account: Account | None,
        peer: str,
        on_request: Callable[[Request], None],
        *,
        on_connect: Callable[[BrokerLink], None] | None = None,
    ) -> ClientLinks:
        """Links of a new client. `on_request` gets the requests that brokers send to it; what it raises
        becomes the response. `on_connect` is called when a link has a new connection, before the request
        that needed it is sent: a heartbeat from there registers the client again."""
        ...
