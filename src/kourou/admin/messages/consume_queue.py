"""Units of a ConsumeQueue, as the broker holds them."""

from __future__ import annotations

from kourou.admin.connections import replica_addresses
from kourou.admin.session import Admin
from kourou.errors import ResponseError
from kourou.protocol.bodies import QueryConsumeQueueResponseBody, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import QueryConsumeQueueRequestHeader


async def query_consume_queue(
    admin: Admin,
    topic: str,
    queue_id: int,
    *,
    index: int,
    count: int = 10,
    broker: str | None = None,
    group: str | None = None,
) -> QueryConsumeQueueResponseBody:
    """Units of a queue from an index on, and, for a group, whether its filter lets them pass.

    Without a broker the first of the topic is asked.
    """
    header = QueryConsumeQueueRequestHeader(
        topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    address = await admin.broker_address(broker) if broker else await _first_address(admin, topic)
    answer = await admin.call(address, RequestCode.QUERY_CONSUME_QUEUE, header)
    return decode_body(answer.body, QueryConsumeQueueResponseBody)


async def _first_address(admin: Admin, topic: str) -> str:
    for address in replica_addresses(await admin.route(topic)):
        return address
    raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} is on no broker")
