"""Connected clients: consumers of a group, producers of a group, all producers of a broker.

A client registers with every broker that it uses, which depends on its topics. So brokers are queried one
after the other, until one knows the group.
"""

from __future__ import annotations

from collections.abc import Iterable

from kourou.admin.session import Admin, replica_address
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import (
    Connection,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerTableInfo,
    TopicRouteData,
    decode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from kourou.protocol.names import retry_topic


def replica_addresses(route: TopicRouteData) -> list[str]:
    """One address of each broker of a route: its master, else a slave."""
    found = (replica_address(broker) for broker in route.broker_datas)
    return [address for address in found if address is not None]


async def group_addresses(admin: Admin, group: str) -> list[str]:
    """One address of each broker that a group has a retry topic on. ResponseError TOPIC_NOT_EXIST if none."""
    return replica_addresses(await admin.route(retry_topic(group)))


async def consumer_connection(admin: Admin, group: str, broker: str | None = None) -> ConsumerConnection:
    """The online members of a consumer group and their subscriptions, as known to one broker.

    ResponseError CONSUMER_NOT_ONLINE if no broker knows a member.
    """
    addresses = (
        [await admin.broker_address(broker)] if broker is not None else await group_addresses(admin, group)
    )
    return await consumer_connection_at(admin, group, addresses)


async def consumer_connection_at(admin: Admin, group: str, addresses: Iterable[str]) -> ConsumerConnection:
    """Like `consumer_connection`, from the first of these brokers that knows a member."""
    failures: list[KourouError] = []
    for address in addresses:
        try:
            found = await _connection_at(admin, group, address)
        except (RemotingError, ResponseError) as error:
            failures.append(error)
            continue
        if found.connection_set:
            return found
    raise _most_specific(failures) or ResponseError(
        ResponseCode.CONSUMER_NOT_ONLINE, f"Not found the consumer group connection: {group} is not online"
    )


async def _connection_at(admin: Admin, group: str, address: str) -> ConsumerConnection:
    answer = await admin.call(
        address,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GetConsumerConnectionListRequestHeader(consumer_group=group),
    )
    return decode_body(answer.body, ConsumerConnection)


def _most_specific(failures: list[KourouError]) -> KourouError | None:
    """A broker's response is preferred to an unreachable broker."""
    said = [failure for failure in failures if isinstance(failure, ResponseError)]
    return next(iter(said or failures), None)


async def producer_connection(admin: Admin, group: str, topic: str) -> list[Connection]:
    """The online producers of a group, as known to one broker of a topic, sorted by client id.

    ResponseError SYSTEM_ERROR if no broker knows one.
    """
    failures: list[KourouError] = []
    for address in replica_addresses(await admin.route(topic)):
        try:
            answer = await admin.call(
                address,
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                GetProducerConnectionListRequestHeader(producer_group=group),
            )
        except (RemotingError, ResponseError) as error:
            failures.append(error)
            continue
        if connections := decode_body(answer.body, ProducerConnection).connection_set:
            return sorted(connections, key=lambda connection: connection.client_id)
    raise _most_specific(failures) or ResponseError(
        ResponseCode.SYSTEM_ERROR, f"Not found the producer group connection: {group} is not online"
    )


async def producers_of_broker(admin: Admin, broker: str) -> ProducerTableInfo:
    """All producers that one broker knows, by group."""
    answer = await admin.call(await admin.broker_address(broker), RequestCode.GET_ALL_PRODUCER_INFO)
    return decode_body(answer.body, ProducerTableInfo)


async def consumers_of_topic(admin: Admin, topic: str) -> list[str]:
    """The groups that consume a topic, or did, sorted.

    Queries every broker of the topic. Unreachable ones are skipped as long as another responds.
    """
    groups: set[str] = set()
    failures: list[KourouError] = []
    addresses = replica_addresses(await admin.route(topic))
    for address in addresses:
        try:
            answer = await admin.call(
                address,
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                QueryTopicConsumeByWhoRequestHeader(topic=topic),
            )
        except (RemotingError, ResponseError) as error:
            failures.append(error)
            continue
        groups.update(decode_body(answer.body, GroupList).group_list)
    if failures and len(failures) == len(addresses):
        raise failures[0]
    return sorted(groups)
