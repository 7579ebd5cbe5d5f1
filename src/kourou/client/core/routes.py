"""Routes: which queues a client may write to and read from, and where their brokers are.

Responses of the name server are kept, and refreshed by the instance. Java's rules: publish queues need a
master and the write permission, subscribe queues the read permission; an order topic has exactly the queues
that its configuration names. MissingTopics finds out why a topic has no route.

Requests that a slave can answer as well go to the master, and to a slave while the master is not in the route
or does not respond.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kourou.client.core.api import ClientApi
from kourou.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    KourouError,
    NoRouteError,
    RemotingError,
)
from kourou.protocol.bodies import BrokerData, MessageQueue, TopicRouteData
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import PermName
from kourou.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC, is_inner_topic, is_retry_topic
from kourou.wording import nearest

if TYPE_CHECKING:
    from kourou.client.core.api import ClientApi

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_KEPT_S: Final = 5.0
_MAX_KEPT: Final = 1_000
_UNKNOWN: Final = "the name server does not know it; create it with `kourou topic create`"


def missing_topic_reason(
    topic: str, namesrv: str, brokers: Collection[str], topics: Collection[str], *, to_publish: bool = False
) -> str:
    """Why a topic has no route, and the next step, given the brokers and topics of a name server."""
    if not brokers:
        return f"no broker is registered with the name server {namesrv}; start one, or check its namesrvAddr"
    is_inner = is_inner_topic(topic)
    near = nearest(topic, (name for name in topics if is_inner_topic(name) == is_inner))
    hint = f" (did you mean {near}?)" if near else ""
    steps = ["create it with `kourou topic create`", "start the broker that has it"]
    if to_publish:
        steps.append("set autoCreateTopicEnable=true at a broker")
    return f"the name server does not know it{hint}; {', '.join(steps[:-1])}, or {steps[-1]}"


class MissingTopics:
    """Why topics have no route; each reason is kept for a few seconds, since a program may retry often.

    A name server forgets the topics of a broker that is gone, so a topic may be missing because its broker is
    down."""

    def __init__(self, api: ClientApi) -> None:
        self._api = api
        self._kept: dict[tuple[str, bool], tuple[float, str]] = {}
        self._finding = asyncio.Lock()

    async def reason(self, topic: str, *, to_publish: bool = False) -> str:
        """Why a topic has no route, as far as it can be determined."""
        if is_retry_topic(topic):  # created by the broker shortly after the group registers
            return _UNKNOWN
        # One at a time: the first of thousands of concurrent sends makes the requests, the others share the
        # result.
        async with self._finding:
            now = asyncio.get_running_loop().time()
            found_at, reason = self._kept.get((topic, to_publish), (0.0, ""))
            if not reason or now - found_at >= _KEPT_S:
                reason = await self._find(topic, to_publish)
                if len(self._kept) >= _MAX_KEPT:
                    self._kept.clear()
                self._kept[topic, to_publish] = asyncio.get_running_loop().time(), reason
            return reason

    async def _find(self, topic: str, to_publish: bool) -> str:
        try:
            brokers = (await self._api.cluster_info()).broker_addr_table
            topics = await self._api.topic_names() if brokers else []
        except KourouError:
            return _UNKNOWN
        # In a thread: comparing tens of thousands of names takes half a second.
        return await asyncio.to_thread(
            missing_topic_reason, topic, self._api.namesrv, brokers, topics, to_publish=to_publish
        )


_WRITE: Final = PermName.WRITE.value


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of one topic. `is_provisional`: the topic does not exist yet, a send will create it."""

    topic: str
    data: TopicRouteData
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    is_provisional: bool = False

    @property
    def is_order_topic(self) -> bool:
        """Whether the name server fixes its queues, so that order survives the loss of a broker."""
        return bool(self.data.order_topic_conf)


def topic_route(topic: str, data: TopicRouteData, *, is_provisional: bool = False) -> TopicRoute:
    """The queues of a route, by Java's rules."""
    masters = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    if data.order_topic_conf:
        publish = _order_queues(topic, data.order_topic_conf)
    else:
        publish = [
            MessageQueue(topic, queue.broker_name, queue_id)
            for queue in sorted(data.queue_datas, key=lambda queue: queue.broker_name)
            if queue.perm & _WRITE and queue.broker_name in masters
            for queue_id in range(queue.write_queue_nums)
        ]
    subscribe = data.subscribe_queues(topic)
    return TopicRoute(topic, data, tuple(publish), tuple(subscribe), is_provisional)


def _order_queues(topic: str, text: str) -> list[MessageQueue]:
    """`broker:count;broker:count`."""
    found = []
    for part in text.split(";"):
        broker_name, _, count = part.partition(":")
        if broker_name and count.isdigit():
            found += [MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count))]
    return found


class BrokerAddress(NamedTuple):
    """One broker of a broker name; the master has id 0."""

    broker_id: int
    address: str


_NO_RESPONSE: Final = (ConnectError, ConnectionLostError, CallTimeoutError)


class Routes:
    """The routes in use, by topic, and the brokers of all of them, by name. `probe` is called with an address
    that did not respond; it is avoided until `reached` is called."""

    def __init__(
        self,
        api: ClientApi,
        *,
        default_topic_queue_nums: int = 4,
        probe: Callable[[str], None] = lambda address: None,
    ) -> None:
        self._api = api
        self._default_topic_queue_nums = default_topic_queue_nums
        self._probe = probe
        self._unreachable: set[str] = set()
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._last_written: dict[str, str] = {}
        self._had_master: set[str] = set()
        # Brokers known from the cluster, not from the route of a topic.
        self._without_topic: set[str] = set()
        self._missing = MissingTopics(api)
        self._fetching: dict[tuple[str, bool, bool], asyncio.Task[TopicRoute | None]] = {}

    @property
    def topics(self) -> list[str]:
        """Every topic whose route was requested."""
        return list(self._routes)

    @property
    def brokers(self) -> dict[str, dict[int, str]]:
        """Addresses by broker name and id."""
        return self._brokers

    def known(self, topic: str) -> TopicRoute | None:
        """The known route, without a request."""
        return self._routes.get(topic)

    def last_written(self, topic: str) -> str | None:
        """A broker of the last route with queues to write to: a topic that has none now has lost them, or
        never had any."""
        return self._last_written.get(topic)

    def had_master(self, broker_name: str) -> bool:
        """Whether a broker has, or had, a master."""
        return broker_name in self._had_master

    async def get(self, topic: str, *, to_publish: bool = False) -> TopicRoute:
        """The route of a topic, requested if it is not known. To publish, a topic that does not exist gets
        the queues that it would be created with. NoRouteError when there is no route."""
        route = self._routes.get(topic)
        if route is None or (to_publish and not route.publish_queues):
            route = await self.refresh(topic, to_publish=to_publish)
        if route is None:
            raise NoRouteError(topic, await self._missing.reason(topic, to_publish=to_publish))
        if to_publish and not route.publish_queues:
            raise NoRouteError(
                topic, "none of its brokers can be written to (no master, or no write permission)"
            )
        return route

    async def refresh(
        self, topic: str, *, to_publish: bool = False, keeps: bool = False
    ) -> TopicRoute | None:
        """Request the route again. Concurrent callers share the response; a route that is gone is removed,
        unless `keeps`."""
        key = topic, to_publish, keeps
        task = self._fetching.get(key)
        if task is None:
            task = asyncio.ensure_future(self._fetch(topic, to_publish=to_publish, keeps=keeps))
            self._fetching[key] = task
            task.add_done_callback(partial(self._fetched, key))
        # Shielded: a caller that is cancelled must not cancel the request for the others.
        return await asyncio.shield(task)

    def _fetched(self, key: tuple[str, bool, bool], task: asyncio.Task[TopicRoute | None]) -> None:
        del self._fetching[key]
        if not task.cancelled():
            task.exception()  # retrieved, since all callers may have been cancelled

    async def _fetch(self, topic: str, *, to_publish: bool, keeps: bool) -> TopicRoute | None:
        data = await self._api.topic_route(topic)
        known = self._routes.get(topic)
        if data is None and (to_publish or (known is not None and known.is_provisional)):
            route = await self._provisional_route(topic)
        else:
            route = None if data is None else topic_route(topic, data)
        if route is None:
            if not keeps:
                self._routes.pop(topic, None)
            return None
        if known is None or known.data != route.data:
            _log.debug("route of %s: %s", topic, route.data)
        self._routes[topic] = route
        if route.publish_queues:
            self._last_written[topic] = route.publish_queues[0].broker_name
        for broker in route.data.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
            if MASTER_ID in broker.broker_addrs:
                self._had_master.add(broker.broker_name)
        return route

    async def _provisional_route(self, topic: str) -> TopicRoute | None:
        """The route of a topic that the first send creates."""
        data = await self._api.topic_route(AUTO_CREATE_TOPIC_KEY_TOPIC)
        if data is None:
            return None
        for queue in data.queue_datas:
            queues = min(self._default_topic_queue_nums, queue.read_queue_nums)
            queue.read_queue_nums = queue.write_queue_nums = queues
        return topic_route(topic, data, is_provisional=True)

    async def add_all_brokers(self) -> None:
        """Add every broker that the name server knows, whether or not a topic in use is there."""
        brokers = (await self._api.cluster_info()).broker_addr_table
        self._without_topic = set(brokers)
        for broker_name, broker in brokers.items():
            self._brokers[broker_name] = dict(broker.broker_addrs)

    def forget_missing_brokers(self) -> None:
        """Remove the brokers that are no longer in any route."""
        named = {broker.broker_name for route in self._routes.values() for broker in route.data.broker_datas}
        named |= self._without_topic
        for broker_name in [name for name in self._brokers if name not in named]:
            del self._brokers[broker_name]

    # -- addresses -------------------------------------------------------------------------------

    def master(self, broker_name: str) -> str | None:
        """The address of a broker's master."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def read_from(self, broker_name: str, broker_id: int = MASTER_ID) -> BrokerAddress | None:
        """A broker to read from: that of `broker_id`, else the next slave, else any. Brokers that did not
        respond are avoided as long as there is another one."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        if self._unreachable:
            addresses = {
                each: address for each, address in addresses.items() if address not in self._unreachable
            } or addresses
        if broker_id not in addresses:
            following = broker_id + 1
            has_following = broker_id != MASTER_ID and following in addresses
            broker_id = following if has_following else next(iter(addresses))
        return BrokerAddress(broker_id, addresses[broker_id])

    def any_of_topic(self, topic: str) -> str | None:
        """A broker of the topic, a master if there is one: for requests that any of them can answer."""
        route = self._routes.get(topic)
        brokers: list[BrokerData] = [] if route is None else route.data.broker_datas
        places = [BrokerAddress(*place) for broker in brokers for place in broker.broker_addrs.items()]
        # The first of those that are equal.
        best = min(
            places,
            key=lambda place: (place.address in self._unreachable, place.broker_id != MASTER_ID),
            default=None,
        )
        return None if best is None else best.address

    # -- brokers that do not respond -------------------------------------------------------------

    async def call_broker(self, queue: MessageQueue, request: Callable[[BrokerAddress], Awaitable[_T]]) -> _T:
        """Send a request about `queue` to its master, or to a slave if the master is away or does not
        respond."""
        place = self.read_from(queue.broker_name)
        if place is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name!r} is not known")
        try:
            return await request(place)
        except RemotingError as error:
            other = self.fail_over(queue.broker_name, place.address, error)
            if other is None:
                raise
        return await request(other)

    def fail_over(self, broker_name: str, address: str, error: RemotingError) -> BrokerAddress | None:
        """Another broker of the same name after a request to `address` has failed; None if there is none."""
        self.avoid(address, error)
        other = self.read_from(broker_name)
        return None if other is None or other.address == address else other

    def avoid(self, address: str, error: RemotingError) -> None:
        """Avoid an address that did not respond, if there is another broker of the same name."""
        if address in self._unreachable or not isinstance(error, _NO_RESPONSE):
            return
        others = self._others(address)
        if others - self._unreachable:
            self._unreachable.add(address)
            _log.warning("%s; requests that a slave can answer go to another broker", error)
            self._probe(address)

    def _others(self, address: str) -> set[str]:
        """The other brokers of the same name."""
        for addresses in self._brokers.values():
            if address in addresses.values():
                return {*addresses.values()} - {address}
        return set()

    def reached(self, address: str) -> None:
        """A broker has responded."""
        if address in self._unreachable:
            self._unreachable.remove(address)
            _log.info("%s responds again", address)

    def is_avoided(self, address: str) -> bool:
        """Whether the address is still avoided. It is no longer once it has left the route, or is the only
        one left."""
        if not self._others(address):
            self._unreachable.discard(address)
        return address in self._unreachable
