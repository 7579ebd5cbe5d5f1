"""Cluster: the brokers that a proxy serves, by its name servers and by what those brokers answer.

Routes and the settings of topics and groups are cached (aged_cache.py). The address of a master is part of
each route; it is looked for again at once when a connection to it ends, as it changes in a fail-over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol

from kourou.access.model import Account
from kourou.client.core.api import ClientApi
from kourou.client.core.namesrv_list import NamesrvList
from kourou.client.core.refusals import is_access_refusal
from kourou.client.core.routes import MissingTopics
from kourou.client.core.settings import ClientSettings
from kourou.errors import ConnectError, KourouError, NoRouteError, ResponseError
from kourou.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    SubscriptionGroupConfig,
    TopicRouteData,
    decode_body,
)
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.groups import GetSubscriptionGroupConfigRequestHeader
from kourou.protocol.headers.topics import GetTopicConfigRequestHeader
from kourou.protocol.names import RMQ_SYS_SELF_TEST_TOPIC
from kourou.protocol.signature import SigningKeys
from kourou.proxy.links.aged_cache import AgedCache
from kourou.proxy.links.broker_link import BrokerLink
from kourou.proxy.links.client_links import OpenLinks
from kourou.transport.addresses import SocketName, parse_address
from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.connector import Connector
from kourou.transport.cycles import Cycles
from kourou.transport.request import Request
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_MS: Final = 3_000
_NAMESRV_REFRESH_S: Final = 120.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 0.5
_SEARCH_S: Final = 60.0
_OWN_NAME: Final = ("127.0.0.1", 0)


class LocalBroker(Protocol):
    """A broker of the same process."""

    @property
    def address(self) -> str:
        """`host:port` as it is in routes."""
        ...

    def connect_local(self, client: asyncio.Protocol, client_name: SocketName) -> None:
        """Connect a client in memory."""
        ...


class _Absent:
    """Stands for what a broker does not have, as None is what a cache does not know."""


_ABSENT: Final = _Absent()


class Cluster:
    """Brokers and name servers as a proxy sees them. Create it on the running loop; `start` and `stop` it
    once. `settings` say where the name servers are, and sign requests to them; `own_keys` sign the proxy's
    own requests to brokers."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        local: Iterable[LocalBroker] = (),
        own_keys: SigningKeys | None = None,
        tasks: TaskOwner,
        cycles: Cycles,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._local = tuple(local)
        self._tasks = tasks
        self._own_keys = own_keys
        self._cycles = cycles
        config = settings.remoting_config()
        self._limits = config.limits
        self._budget = InboundBudget(config.max_inbound_bytes)
        self._connector = Connector(config)
        self._remoting = RemotingClient(config)
        self._namesrvs = NamesrvList(settings)
        self._api = ClientApi(self._remoting, self._namesrvs, settings)
        self._missing = MissingTopics(self._api)
        self._masters: dict[str, str] = {}
        self._open_links: set[OpenLinks] = set()
        # Brokers whose masters are looked for, and whether the address of the old one answers again.
        self._searched: dict[str, bool] = {}
        self._own: OpenLinks | None = None
        self._routes = AgedCache(self._load_route, tasks, what="route")
        self._topics = AgedCache(self._load_topic, tasks, what="topic")
        self._groups = AgedCache(self._load_group, tasks, what="group")
        self._brokers: AgedCache[str, ClusterInfo] = AgedCache(
            self._load_brokers, tasks, what="brokers", fresh_s=1.0, old_s=2.0
        )

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """NameServerNotGivenError, ConfigError: there is no address of a name server. That one answers is not
        required: proxies and name servers may start in any order."""
        await self._namesrvs.refresh()
        self._tasks.start(self._follow_namesrvs(), "name servers")

    async def stop(self) -> None:
        """Close all links."""
        await asyncio.gather(*(links.close() for links in list(self._open_links)))
        self._cycles.close()
        await self._remoting.stop()

    async def _follow_namesrvs(self) -> None:
        while True:
            await asyncio.sleep(_NAMESRV_REFRESH_S)
            try:
                await self._namesrvs.refresh()
            except KourouError as error:
                _log.warning("keeping the known name servers: %s", error)

    async def why_not_ready(self) -> str | None:
        """Why no broker can be reached, in one line; None: a name server knows some."""
        try:
            found = await self._brokers.get("")
        except KourouError as error:
            return str(error)
        if not found.broker_addr_table:
            return f"no broker is registered with the name server {self._namesrvs.current}"
        return None

    @property
    def client_count(self) -> int:
        """How many clients have links."""
        return len(self._open_links) - (self._own is not None)

    # -- routes and settings ---------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic. NoRouteError, NoNameServerError."""
        return await self._routes.get(topic)

    def known_route(self, topic: str) -> TopicRouteData | None:
        """The same without waiting."""
        return self._routes.known(topic)

    async def topic_config(self, topic: str) -> TopicConfig | None:
        """What a broker has stored of a topic."""
        found = await self._topics.get(topic)
        return None if isinstance(found, _Absent) else found

    def known_topic_config(self, topic: str) -> TopicConfig | None:
        """The same without waiting."""
        found = self._topics.known(topic)
        return None if isinstance(found, _Absent) else found

    async def group_config(self, topic: str, group: str) -> SubscriptionGroupConfig | None:
        """What a broker of the topic has stored of a group; of any topic if it is empty."""
        found = await self._groups.get((topic, group))
        return None if isinstance(found, _Absent) else found

    async def _load_route(self, topic: str) -> TopicRouteData:
        route = await self._api.topic_route(topic)
        if route is None:
            raise NoRouteError(topic, await self._missing.reason(topic))
        self._learn(route.broker_datas)
        return route

    async def _load_brokers(self, _: str) -> ClusterInfo:
        found = await self._api.cluster_info()
        self._learn(found.broker_addr_table.values())
        return found

    def _learn(self, brokers: Iterable[BrokerData]) -> None:
        for broker in brokers:
            master = broker.broker_addrs.get(MASTER_ID)
            if master is None and broker.enable_acting_master and broker.broker_addrs:
                master = broker.broker_addrs[min(broker.broker_addrs)]
            if master is not None and self._masters.get(broker.broker_name) != master:
                _log.debug("the master of %s is at %s", broker.broker_name, master)
                if broker.broker_name in self._masters:
                    # Routes of the time between two masters have no queue to write to.
                    self._routes.drop(partial(_has_broker, broker.broker_name))
                self._masters[broker.broker_name] = master

    async def _load_topic(self, topic: str) -> TopicConfig | _Absent:
        header = GetTopicConfigRequestHeader(topic=topic)
        command = RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, header)
        answer = await self.request(command, ResponseCode.TOPIC_NOT_EXIST, await self.route(topic))
        return _ABSENT if answer is None else decode_body(answer.body, TopicConfig)

    async def _load_group(self, key: tuple[str, str]) -> SubscriptionGroupConfig | _Absent:
        topic, group = key
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        command = RemotingCommand.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        route = await self.route(topic) if topic else None
        answer = await self.request(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, route)
        return _ABSENT if answer is None else decode_body(answer.body, SubscriptionGroupConfig)

    async def request(
        self,
        command: RemotingCommand,
        absent: int,
        route: TopicRouteData | None = None,
        *,
        links: OpenLinks | None = None,
    ) -> RemotingCommand | None:
        """Ask the first broker of a route, or of the cluster, with the proxy's own account, or over other
        `links`; None: the answer is `absent`. RemotingError, ResponseError, NoNameServerError."""
        if route is None:
            brokers: Iterable[BrokerData] = (await self._brokers.get("")).broker_addr_table.values()
        else:
            brokers = route.broker_datas
        names = sorted(broker.broker_name for broker in brokers if broker.broker_addrs)
        if not names:
            raise ConnectError("", "the name server knows no broker")
        if links is None:
            if self._own is None:
                self._own = self._new_links("proxy", self._own_keys, _OWN_NAME, _refuse, None)
            links = self._own
        name = next((name for name in names if name in self._masters), names[0])
        answer = await links.link(name).call_nowait(command, _REQUEST_TIMEOUT_MS)
        if answer.code == absent:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", name)
        return answer

    async def refusal_of_unsigned(self) -> str | None:
        """The words in which a broker refuses a request without a signature; None: it does not.
        RemotingError, NoNameServerError."""
        command = RemotingCommand.request(
            RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=RMQ_SYS_SELF_TEST_TOPIC)
        )
        links = self._new_links("proxy", None, _OWN_NAME, _refuse, None)
        try:
            await self.request(command, ResponseCode.TOPIC_NOT_EXIST, links=links)
        except ResponseError as error:
            return error.remark if is_access_refusal(error.code, error.remark) else None
        finally:
            await links.close()
        return None

    # -- links -----------------------------------------------------------------------------------

    def links_of(
        self,
        client_id: str,
        account: Account | None,
        peer: str,
        on_request: Callable[[Request], None],
        *,
        on_connect: Callable[[BrokerLink], None] | None = None,
    ) -> OpenLinks:
        """Links of a new client."""
        keys = None if account is None else SigningKeys(account.name, account.secret_key)
        return self._new_links(client_id, keys, parse_address(peer), on_request, on_connect)

    def _new_links(
        self,
        client_id: str,
        keys: SigningKeys | None,
        client_name: SocketName,
        on_request: Callable[[Request], None],
        on_connect: Callable[[BrokerLink], None] | None,
    ) -> OpenLinks:
        links = OpenLinks(
            self,
            client_id=client_id,
            keys=keys,
            client_name=client_name,
            on_request=on_request,
            on_connect=on_connect,
        )
        self._open_links.add(links)
        return links

    def closed(self, links: OpenLinks) -> None:
        """A client's links are closed."""
        self._open_links.discard(links)

    def master(self, broker_name: str) -> str | None:
        """The address of a broker's master, as far as it is known."""
        return self._masters.get(broker_name)

    async def find_master(self, broker_name: str) -> str:
        """Ask the name server. ConnectError: the broker has no master now."""
        found = await self._brokers.get("")
        address = self._masters.get(broker_name)
        if address is None:
            known = broker_name in found.broker_addr_table
            reason = "it has no master now" if known else "the name server does not know it"
            raise ConnectError(f"broker {broker_name}", reason)
        return address

    def connect_local(self, address: str, client: Connection, client_name: SocketName) -> bool:
        """Connect to a broker of this process."""
        for broker in self._local:
            if broker.address == address:
                broker.connect_local(client, client_name)
                return True
        return False

    async def connect(self, address: str, factory: Callable[[], Connection]) -> Connection:
        """Connect by TCP."""
        return await self._connector.connect(address, factory)

    def new_connection(
        self, dispatch: Callable[[Request], None], on_close: Callable[[Connection], None]
    ) -> Connection:
        """A connection for a link."""
        return Connection(self._cycles, dispatch, self._limits, self._budget, on_close=on_close)

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` in a task of the proxy."""
        self._tasks.start(work, name)

    def lost(self, broker_name: str, address: str) -> None:
        """Look for the master of a broker, in case that it is another one now."""
        if self._masters.get(broker_name) == address:
            if broker_name not in self._searched:
                self._tasks.start(self._search(broker_name, address), f"master of {broker_name}")
            self._searched[broker_name] = False

    def reached(self, broker_name: str) -> None:
        """The address of a master has accepted a connection. It may be a slave by now."""
        if broker_name in self._searched:
            self._searched[broker_name] = True

    async def _search(self, broker_name: str, address: str) -> None:
        """Until there is another master, or the old one has come back."""
        began, pause_s = self._loop.time(), _FIRST_PAUSE_S
        try:
            while self._loop.time() - began < _SEARCH_S:
                try:
                    found = await self._brokers.refresh("")
                except KourouError as error:
                    _log.debug("master of %s: %s", broker_name, error)
                else:
                    broker = found.broker_addr_table.get(broker_name)
                    master = None if broker is None else broker.broker_addrs.get(MASTER_ID)
                    if master is not None and (master != address or self._searched[broker_name]):
                        return
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            del self._searched[broker_name]


def _has_broker(broker_name: str, route: TopicRouteData) -> bool:
    return any(broker.broker_name == broker_name for broker in route.broker_datas)


def _refuse(request: Request) -> None:
    """Brokers send no requests to the proxy itself."""
    request.error(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
