"""QueryRoute and QueryAssignment: where a client finds the queues of a topic.

All of them are behind this proxy, so every broker has the address by which the client has reached it: host
and port of the request are sent back. Clients keep their sessions by that address: it is never another one.
Topics are not created here, whatever brokers are configured to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from kourou.access.model import Action, Needs
from kourou.access.needs import consume, topic_need
from kourou.errors import ConfigError
from kourou.protocol.bodies import BrokerData, TopicRouteData
from kourou.protocol.bodies.route import MASTER_ID, QueueData
from kourou.protocol.codes import PermName
from kourou.proxy.access.grpc_login import ProxyAccess
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Call, Handler
from kourou.proxy.links.broker_link import Brokers
from kourou.proxy.messages.message_types import accepted_types
from kourou.proxy.messages.names import group_name, topic_name
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.service.handlers import HandlerMaker, path_of
from kourou.proxy.service.topic_attributes import topic_attributes
from kourou.proxy.wire.rocketmq_v2 import (
    Address,
    AddressScheme,
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
)
from kourou.transport.addresses import parse_address

_READ: Final = PermName.READ.value
_WRITE: Final = PermName.WRITE.value
_EVERY_QUEUE: Final = -1
_EITHER: Final = frozenset({Action.PUB, Action.SUB})
_MAX_ADDRESSES: Final = 64
_MAX_HOST: Final = 255
_MAX_QUEUES: Final = 100_000
"""Of an answer: beyond this, it would be larger than clients accept."""


class Routes:
    """The RPCs."""

    def __init__(self, brokers: Brokers, access: ProxyAccess) -> None:
        self._brokers = brokers
        self._access = access

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Their handlers, by path."""
        return {
            path_of("QueryRoute"): make.by_coroutine(QueryRouteRequest, QueryRouteResponse, self.route),
            path_of("QueryAssignment"): make.by_coroutine(
                QueryAssignmentRequest, QueryAssignmentResponse, self.assignment
            ),
        }

    async def route(self, client: ProxyClient, request: QueryRouteRequest, call: Call) -> QueryRouteResponse:
        """QueryRoute."""
        topic = topic_name(request.topic)
        self._access.check(call, _use(topic))
        endpoints = endpoints_of(request.endpoints, call.authority)
        route = await self._brokers.route(topic)
        types = accepted_types(await topic_attributes(self._brokers, topic))
        queues = list(route_queues(request.topic, route, endpoints, types))
        return QueryRouteResponse(status=make_status(Code.OK), message_queues=queues)

    async def assignment(
        self, client: ProxyClient, request: QueryAssignmentRequest, call: Call
    ) -> QueryAssignmentResponse:
        """QueryAssignment. All consumers of a group have all queues: a receive reads a broker, and POP gives
        each message to one of them."""
        topic, group = topic_name(request.topic), group_name(request.group)
        self._access.check(call, consume(topic, group))
        endpoints = endpoints_of(request.endpoints, call.authority)
        route = await self._brokers.route(topic)
        config = await self._brokers.group_config(topic, group)
        is_fifo = config is not None and config.consume_message_orderly
        queues = list(assigned_queues(request.topic, route, endpoints, is_fifo=is_fifo))
        if not queues:
            raise StatusError(Code.FORBIDDEN, f"topic {topic} has no queue that can be read")
        return QueryAssignmentResponse(
            status=make_status(Code.OK), assignments=[Assignment(message_queue=queue) for queue in queues]
        )


@lru_cache(maxsize=8_192)
def _use(topic: str) -> Needs:
    """To send to a topic, or to consume it."""
    need = topic_need(topic, _EITHER)
    return Needs(auth=(need,), plain=(need,))


def route_queues(
    topic: Resource, route: TopicRouteData, endpoints: Endpoints, types: Sequence[MessageType]
) -> Iterator[MessageQueue]:
    """The queues of a topic, at each replica. They are numbered as by Apache's proxy: first those that can
    only be read, then those that can only be written to."""
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for queues in sorted(route.queue_datas, key=lambda each: each.broker_name):
        broker = brokers.get(queues.broker_name)
        if broker is None:
            continue
        for broker_id in sorted(broker.broker_addrs):
            wire_broker = Broker(name=broker.broker_name, id=broker_id, endpoints=endpoints)
            for queue_id, permission in enumerate(_permissions(queues)):
                yield MessageQueue(
                    topic=topic,
                    id=queue_id,
                    permission=permission,
                    broker=wire_broker,
                    accept_message_types=types,
                )


def _permissions(queues: QueueData) -> Sequence[Permission]:
    readable = max(queues.read_queue_nums, 0) if queues.perm & _READ else 0
    writable = max(queues.write_queue_nums, 0) if queues.perm & _WRITE else 0
    both = min(readable, writable)
    if not queues.perm & (_READ | _WRITE):
        none = max(1, queues.read_queue_nums, queues.write_queue_nums)
        return [Permission.NONE] * min(none, _MAX_QUEUES)
    kinds = (
        [Permission.READ] * (readable - both)
        + [Permission.WRITE] * (writable - both)
        + [Permission.READ_WRITE] * both
    )
    return kinds[:_MAX_QUEUES]


def assigned_queues(
    topic: Resource, route: TopicRouteData, endpoints: Endpoints, *, is_fifo: bool
) -> Iterator[MessageQueue]:
    """What a consumer of a topic reads: each broker as a whole, or each queue for a group that consumes in
    order."""
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for queues in sorted(route.queue_datas, key=lambda each: each.broker_name):
        broker = brokers.get(queues.broker_name)
        if broker is None or not _is_served(broker) or not queues.perm & _READ or queues.read_queue_nums < 1:
            continue
        wire_broker = Broker(name=broker.broker_name, id=MASTER_ID, endpoints=endpoints)
        permission = Permission.READ_WRITE if queues.perm & _WRITE else Permission.READ
        for queue_id in range(queues.read_queue_nums) if is_fifo else (_EVERY_QUEUE,):
            yield MessageQueue(topic=topic, id=queue_id, permission=permission, broker=wire_broker)


def _is_served(broker: BrokerData) -> bool:
    """Whether there is a master, or a slave in its place."""
    return MASTER_ID in broker.broker_addrs or (broker.enable_acting_master and bool(broker.broker_addrs))


def endpoints_of(sent: Endpoints, authority: str) -> Endpoints:
    """The address that a client is sent: the one by which it has reached the proxy, as it says itself, or
    else as its call says. StatusError: neither says it."""
    # They are sent back with each queue of a topic, so they must be few and short.
    if len(sent.addresses) > _MAX_ADDRESSES:
        raise _illegal(f"{len(sent.addresses)}")
    addresses = list(sent.addresses) or _addresses_of(authority)
    for address in addresses:
        host = address.host
        if not host.strip() or len(host) > _MAX_HOST or not 0 < address.port < 65_536:
            raise _illegal(f"{address.host!r:.100}, port {address.port}")
    schemes = {_scheme(address.host) for address in addresses}
    scheme = schemes.pop() if len(schemes) == 1 else AddressScheme.DOMAIN_NAME
    # Clients accept one domain name only.
    return Endpoints(
        scheme=scheme, addresses=addresses[:1] if scheme is AddressScheme.DOMAIN_NAME else addresses
    )


def _addresses_of(authority: str) -> list[Address]:
    try:
        host, port = parse_address(authority)
    except ConfigError:
        raise _illegal("none") from None
    return [Address(host=host, port=port)]


def _illegal(shown: str) -> StatusError:
    return StatusError(
        Code.ILLEGAL_ACCESS_POINT, f"endpoints have to be host and port of the proxy; these are {shown}"
    )


@lru_cache(maxsize=1_024)
def _scheme(host: str) -> AddressScheme:
    try:
        return AddressScheme.IPv4 if ip_address(host.strip("[]")).version == 4 else AddressScheme.IPv6
    except ValueError:
        return AddressScheme.DOMAIN_NAME
