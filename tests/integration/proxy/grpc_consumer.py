"""A consumer of rocketmq.v2 for tests: it does one call at a time, and only what it is asked to."""

from __future__ import annotations

from typing import Any

from kourou.proxy.wire.rocketmq_v2 import (
    AckMessageEntry,
    AckMessageRequest,
    Broker,
    ChangeInvisibleDurationRequest,
    ClientType,
    Code,
    Duration,
    FilterExpression,
    FilterType,
    ForwardMessageToDeadLetterQueueRequest,
    HeartbeatRequest,
    Message,
    MessageQueue,
    ReceiveMessageRequest,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from tests.integration.proxy.wire_client import Stream, WireClient


class GrpcConsumer:
    """A consumer of one group and one topic."""

    def __init__(self, client: WireClient, topic: str, group: str = "consumers") -> None:
        self.client = client
        self.topic = Resource(name=topic)
        self.group = Resource(name=group)
        self.filter = FilterExpression(type=FilterType.TAG, expression="*")
        self.stream: Stream

    async def start(
        self, *, client_type: int = ClientType.PUSH_CONSUMER, sql: str = "", tags: str = "*"
    ) -> Settings:
        """Exchange settings; those of the proxy."""
        kind = FilterType.SQL if sql else FilterType.TAG
        self.filter = FilterExpression(type=kind, expression=sql or tags)
        entry = SubscriptionEntry(topic=self.topic, expression=self.filter)
        subscription = Subscription(group=self.group, subscriptions=[entry])
        self.stream, settings = await self.client.exchange_settings(
            Settings(client_type=client_type, subscription=subscription)
        )
        return settings

    async def heartbeat(self) -> int:
        """The code of a heartbeat."""
        response = await self.client.unary("Heartbeat", HeartbeatRequest(group=self.group))
        code: int = response.status.code
        return code

    def begin(self, *, broker: str = "broker-a", invisible_s: int = 0, **fields: Any) -> Stream:
        """Begin to receive: as a push consumer, or with an invisible time as a simple one."""
        request = ReceiveMessageRequest(
            group=self.group,
            message_queue=MessageQueue(topic=self.topic, broker=Broker(name=broker)),
            filter_expression=self.filter,
            long_polling_timeout=Duration(seconds=5),
            **{"batch_size": 32, "auto_renew": not invisible_s, **fields},
        )
        if invisible_s:
            request.invisible_duration.seconds = invisible_s
        return self.client.start("ReceiveMessage", request)

    async def end(self, receiving: Stream) -> tuple[int, list[Message]]:
        """The status of a receive, and its messages."""
        first = await receiving.next()
        assert first is not None and first.HasField("status"), receiving.trailers
        messages = []
        while (response := await receiving.next()) is not None:
            if response.HasField("message"):
                messages.append(response.message)
        return first.status.code, messages

    async def receive(self, **fields: Any) -> list[Message]:
        """Receive once: the messages, if there are any."""
        code, messages = await self.end(self.begin(**fields))
        assert code in (Code.OK, Code.MESSAGE_NOT_FOUND), code
        return messages

    async def receive_some(self, **fields: Any) -> list[Message]:
        """Receive until there is a message."""
        for _ in range(6):
            if messages := await self.receive(**fields):
                return messages
        raise AssertionError("nothing came in 30 s")

    async def ack(self, *messages: Message | str) -> list[int]:
        """The code of each ack; a handle stands for its message."""
        entries = [
            AckMessageEntry(receipt_handle=each)
            if isinstance(each, str)
            else AckMessageEntry(
                message_id=each.system_properties.message_id,
                receipt_handle=each.system_properties.receipt_handle,
            )
            for each in messages
        ]
        request = AckMessageRequest(group=self.group, topic=self.topic, entries=entries)
        response = await self.client.unary("AckMessage", request)
        return [entry.status.code for entry in response.entries]

    async def change(self, handle: str, seconds: int) -> tuple[int, str]:
        """The code of a change of the invisible time, and the handle after it."""
        request = ChangeInvisibleDurationRequest(
            group=self.group,
            topic=self.topic,
            receipt_handle=handle,
            invisible_duration=Duration(seconds=seconds),
        )
        response = await self.client.unary("ChangeInvisibleDuration", request)
        return response.status.code, response.receipt_handle

    async def forward(self, message: Message) -> int:
        """The code of forwarding a message to the dead letters."""
        request = ForwardMessageToDeadLetterQueueRequest(
            group=self.group,
            topic=self.topic,
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
        )
        response = await self.client.unary("ForwardMessageToDeadLetterQueue", request)
        code: int = response.status.code
        return code


def handle_of(message: Message) -> str:
    """The receipt handle of a message."""
    return message.system_properties.receipt_handle or ""


def bodies(messages: list[Message]) -> list[bytes]:
    """The bodies of messages."""
    return [message.body for message in messages]
