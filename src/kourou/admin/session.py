"""Admin: an operator's connections to name servers and brokers, and the members of a cluster.

It is not registered: brokers do not see it as a client. Failures are raised unchanged; a ResponseError has
the code and the text of the server.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, Unpack

import msgspec

from kourou.client.core.api import ClientApi
from kourou.client.core.namesrv_list import NamesrvList
from kourou.client.core.settings import ClientOptions, ClientSettings
from kourou.errors import ConfigError, NameServerNotGivenError, ResponseError
from kourou.protocol.bodies import BrokerData, ClusterInfo, TopicRouteData
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient
from kourou.wording import suggestion

DEFAULT_TIMEOUT_MS: Final = 5_000
"""For one request, as in Apache's `mqadmin`."""


def command_line(namesrvs: Sequence[str], command: str, *words: str) -> str:
    """An mqadmin command line to copy and run."""
    return shlex.join(["mqadmin", command, "-n", ";".join(namesrvs), *words])


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker of a cluster: master or slave."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


def places_in(info: ClusterInfo) -> list[BrokerAddress]:
    """All brokers that a name server knows, sorted by cluster, name and id."""
    names = {
        (cluster, name) for cluster, of_cluster in info.cluster_addr_table.items() for name in of_cluster
    }
    return [
        BrokerAddress(cluster, name, broker_id, address)
        for cluster, name in sorted(names)
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    ]


class Admin:
    """Sends requests for an operator. Options are those of every client (ClientOptions)."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        # An explicit timeout also applies to requests that have longer ones by default.
        self._max_timeout_ms = options.get("request_timeout_ms")
        options.setdefault("request_timeout_ms", DEFAULT_TIMEOUT_MS)
        self.options: ClientOptions = options
        """For other clients that an operation needs."""
        self.settings = ClientSettings(**options)
        self._namesrvs = NamesrvList(self.settings)

    async def __aenter__(self) -> Self:
        """Find the name servers. Without any, brokers can be reached by address."""
        with suppress(NameServerNotGivenError):
            await self._namesrvs.refresh()
        self._remoting = self._connect()
        self._api = ClientApi(
            self._remoting, self._namesrvs, self.settings, max_timeout_ms=self._max_timeout_ms
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._remoting.stop()

    def _connect(self) -> RemotingClient:
        return RemotingClient(self.settings.remoting_config())

    # -- requests --------------------------------------------------------------------------------

    @property
    def api(self) -> ClientApi:
        """Requests common to all clients: offsets, consumer ids and so on."""
        return self._api

    @property
    def namesrvs(self) -> tuple[str, ...]:
        """All name servers. NameServerNotGivenError, with instructions, if none is configured."""
        return self._namesrvs.addresses or (self._namesrvs.current,)

    async def call(
        self,
        address: str,
        code: int,
        header: msgspec.Struct | None = None,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """Send a request to a broker or a specific name server; ResponseError unless it succeeds."""
        return await self._api.call(address, code, header, body, timeout_ms)

    async def call_namesrv(
        self, code: int, header: msgspec.Struct | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to the name servers until one responds."""
        return await self._api.call_namesrv(code, header, body)

    # -- the cluster -----------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters that the name server knows."""
        return await self._api.cluster_info()

    async def brokers(self, cluster: str | None = None) -> list[BrokerAddress]:
        """All brokers, masters and slaves, of one cluster or of all, sorted; empty if there is no such
        cluster."""
        places = places_in(await self.cluster_info())
        return [place for place in places if cluster is None or place.cluster == cluster]

    async def masters(self, cluster: str | None = None) -> list[BrokerAddress]:
        """The masters of one cluster or of all."""
        return [broker for broker in await self.brokers(cluster) if broker.is_master]

    async def broker_address(self, text: str) -> str:
        """The address of a broker given as `host:port` or by name, then of its master. ConfigError if
        there is no such broker."""
        if ":" in text:
            return text
        masters = await self.masters()
        for broker in masters:
            if broker.broker_name == text:
                return broker.address
        names = [broker.broker_name for broker in masters]
        there = f"; there are: {', '.join(names)}" if names else "; no master is registered"
        raise ConfigError(
            f"broker {text}: no master has that name, and it is not host:port"
            f"{suggestion(text, names) or there}"
        )

    async def broker_name(self, text: str) -> str:
        """The name of a broker given by name or as `host:port`."""
        if ":" in text:
            for broker in await self.brokers():
                if broker.address == text:
                    return broker.broker_name
        return text

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic. ResponseError TOPIC_NOT_EXIST if the name server does not know it."""
        route = await self._api.topic_route(topic)
        if route is None:
            raise ResponseError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
                self._namesrvs.current,
            )
        return route


def replica_address(broker: BrokerData) -> str | None:
    """The master of a broker, else one of its slaves; None if it has no address."""
    return broker.broker_addrs.get(MASTER_ID) or next(iter(broker.broker_addrs.values()), None)
