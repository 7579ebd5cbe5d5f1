"""Request and reply: a message whose sender waits for a reply, and the reply.

A request is an ordinary message with a correlation id and the requester's client id. The consumer's reply
goes to `<cluster>_REPLY_TOPIC`; the broker that stores it sends it to the requester, so the requester has to
be registered with every broker of the cluster first.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.producer.outgoing import REPLY
from kourou.errors import KourouError, MessageRefusedError
from kourou.protocol.compression import inflate_reply_body
from kourou.protocol.headers.send import ReplyMessageRequestHeader
from kourou.protocol.layout import MESSAGE_MAGIC_CODE
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.message_id import encode_host
from kourou.protocol.names import reply_topic
from kourou.protocol.properties import MessageConst, decode_properties, encode_properties, properties_to_bytes
from kourou.transport.addresses import parse_address
from kourou.transport.request import Request

_CORRELATION_ID: Final = MessageConst.PROPERTY_CORRELATION_ID
_REPLY_TO: Final = MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT
_TTL: Final = MessageConst.PROPERTY_MESSAGE_TTL


def reply_to(request: MessageExt, body: bytes) -> Message:
    """The reply to a request, for any producer to send; MessageRefusedError if `request` is not a request.

    In a handler: `await producer.send(reply_to(message, b"pong"))`.
    """
    properties = request.properties
    cluster = properties.get(MessageConst.PROPERTY_CLUSTER)
    for name in (_CORRELATION_ID, _REPLY_TO):
        if not properties.get(name):
            raise MessageRefusedError(
                f"message {request.msg_id} of topic {request.topic!r} is not a request: it has no {name}; "
                "only what was sent with `request` can be replied to"
            )
    if not cluster:
        raise MessageRefusedError(
            f"request {request.msg_id} has no CLUSTER property, so its reply topic is unknown"
        )
    reply = Message(reply_topic(cluster), body)
    reply.put_property(MessageConst.PROPERTY_MESSAGE_TYPE, REPLY)
    for name in (_CORRELATION_ID, _REPLY_TO, _TTL):
        if value := properties.get(name):
            reply.put_property(name, value)
    return reply


class Requests:
    """The requests of one producer that wait for a reply."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}
        self._known_topics: set[str] = set()

    async def prepare(self, topic: str) -> None:
        """Register with every broker that may deliver the reply."""
        if topic in self._known_topics:
            return
        routes = self._instance.routes
        route = await routes.get(topic, to_publish=True)
        for cluster in {broker.cluster for broker in route.data.broker_datas if broker.cluster}:
            try:
                await routes.refresh(reply_topic(cluster))
            except KourouError:
                pass  # the brokers of the topic itself are known, usually all of them
        await self._instance.heartbeat()
        self._known_topics.add(topic)

    def expect(self, timeout_ms: int) -> tuple[str, str, asyncio.Future[MessageExt]]:
        """A new request: its correlation id, its properties, and the future reply."""
        correlation_id = str(uuid.uuid4())
        properties = encode_properties(
            {_CORRELATION_ID: correlation_id, _REPLY_TO: self._instance.client_id, _TTL: str(timeout_ms)}
        )
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, properties, future

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for this reply."""
        self._waiting.pop(correlation_id, None)

    def fail_all(self, error: Exception) -> None:
        """Fail all requests that wait."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._waiting.clear()

    def handle_reply(self, request: Request) -> None:
        """PUSH_REPLY_MESSAGE_TO_CLIENT: a broker delivers a reply."""
        reply = _reply_of(request)
        waiting = self._waiting.pop(reply.properties.get(_CORRELATION_ID, ""), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
        # A late reply is accepted too, as in Java, so that its sender does not retry.
        request.reply()


def _reply_of(request: Request) -> MessageExt:
    header = request.header(ReplyMessageRequestHeader)
    now_ms = int(time.time() * 1000)
    properties = decode_properties(header.properties or "")
    properties[MessageConst.PROPERTY_REPLY_MESSAGE_ARRIVE_TIME] = str(now_ms)
    return MessageExt(
        store_size=0,
        magic=MESSAGE_MAGIC_CODE,
        body_crc=0,
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        phy_offset=0,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        raw_born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        raw_store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        stored_body=request.body,
        topic=header.topic,
        raw_properties=properties_to_bytes(encode_properties(properties)),
        _properties=properties,
        _body=inflate_reply_body(request.body, header.sys_flag),
    )


def _host(text: str) -> bytes:
    """`ip:port` in the format of a record; some brokers send `/ip:port`."""
    try:
        return encode_host(*parse_address(text.lstrip("/")))
    except (ValueError, KourouError):
        return encode_host("0.0.0.0", 0)
