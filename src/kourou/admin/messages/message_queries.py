"""Messages by key or unique id, from the index of every broker of the topic; and units of a ConsumeQueue.

The index contains hashes of keys, so results are compared with the key. Not here: messages by position
(messages.py, message_reading.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kourou.admin.connections import replica_addresses
from kourou.admin.session import Admin, replica_address
from kourou.errors import RemotingError, ResponseError
from kourou.protocol.bodies import BrokerData, QueryConsumeQueueResponseBody, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import QueryConsumeQueueRequestHeader, QueryMessageRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst
from kourou.protocol.record import decode_records

MAX_FOUND: Final = 64
"""Maximum number of messages per broker, as in Apache's tools; also the default limit of brokers."""
MAX_SAME_ID: Final = 32
FOR_EVER_MS: Final = (1 << 63) - 1
KEY_INDEX: Final = "K"
TAG_INDEX: Final = "T"
_TIMEOUT_FACTOR: Final = 4
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The messages of a query, and why some may be missing."""

    messages: list[MessageExt]
    problems: list[str]
    """Brokers that did not answer, or returned as many messages as was requested."""


async def search_by_key(
    admin: Admin,
    topic: str,
    key: str,
    *,
    max_num: int = MAX_FOUND,
    begin_ms: int = 0,
    end_ms: int = FOR_EVER_MS,
    route_of: str | None = None,
    index_type: str | None = None,
    last_key: str | None = None,
) -> KeySearch:
    """Messages of a topic with a key, or with a tag (`index_type` "T", brokers from 5.5 on).

    `route_of` is a topic or cluster whose brokers are queried instead of the topic's. `last_key`: continue
    after it, with an index in RocksDB. ResponseError NO_MESSAGE if there is none.
    """
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=max_num,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        # Without `unique_key_query`: brokers of 4.x do not cover it by the signature, so would refuse ours.
        index_type=index_type,
        last_key=last_key,
    )

    def is_match(message: MessageExt) -> bool:
        return message.tags == key if index_type == TAG_INDEX else key in message.keys

    return await _query(admin, header, route_of, is_match)


async def query_by_unique_key(
    admin: Admin,
    topic: str,
    msg_id: str,
    *,
    begin_ms: int = 0,
    end_ms: int = FOR_EVER_MS,
    route_of: str | None = None,
) -> list[MessageExt]:
    """Messages with the id assigned by the producer: one, or several if it was sent again. Oldest first.

    ResponseError NO_MESSAGE if there is none.
    """
    header = QueryMessageRequestHeader(
        topic=topic,
        key=msg_id,
        max_num=MAX_SAME_ID,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        unique_key_query=True,
    )

    def is_match(message: MessageExt) -> bool:
        return message.get_property(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) == msg_id

    found = await _query(admin, header, route_of, is_match)
    return sorted(found.messages, key=lambda message: message.store_timestamp)


def index_key(message: MessageExt, key: str, index_type: str = KEY_INDEX) -> str:
    """The key of a message in the index of RocketMQ 5.5: `hour@topic@K@key@id@place`."""
    hour_ms = message.store_timestamp - message.store_timestamp % _HOUR_MS
    return f"{hour_ms}@{message.topic}@{index_type}@{key}@{message.msg_id}@{message.phy_offset}"


async def _query(
    admin: Admin,
    header: QueryMessageRequestHeader,
    route_of: str | None,
    is_match: Callable[[MessageExt], bool],
) -> KeySearch:
    """Query all brokers in parallel. Failures are only listed if another broker has a result."""
    brokers = (await admin.route(route_of or header.topic)).broker_datas
    answers = await asyncio.gather(
        *(_query_broker(admin, broker, header) for broker in brokers), return_exceptions=True
    )
    found: list[MessageExt] = []
    failures: list[BaseException] = []
    problems: list[str] = []
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, BaseException):
            failures.append(answer)
            problems.append(f"broker {broker.broker_name} could not be queried: {answer}")
            continue
        found += (message for message in answer if message.topic == header.topic and is_match(message))
        if len(answer) >= min(header.max_num, MAX_FOUND):
            problems.append(
                f"broker {broker.broker_name} returned {len(answer)} messages, its maximum; there may be more"
            )
    for failure in failures:
        if not found or not isinstance(failure, RemotingError | ResponseError):
            raise failure
    if not found:
        raise ResponseError(ResponseCode.NO_MESSAGE, "query message by key finished, but no message.")
    return KeySearch(found, problems)


async def _query_broker(
    admin: Admin, broker: BrokerData, header: QueryMessageRequestHeader
) -> list[MessageExt]:
    address = replica_address(broker)
    if address is None:
        return []
    try:
        answer = await admin.call(
            address,
            RequestCode.QUERY_MESSAGE,
            header,
            timeout_ms=_TIMEOUT_FACTOR * admin.settings.request_timeout_ms,
        )
    except ResponseError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
    found = decode_records(answer.body)
    for message in found:
        message.broker_name = broker.broker_name
    return found


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
    """Units of a queue from an index on, and whether a group's filter accepts them.

    Without a broker the topic's first one is queried.
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
