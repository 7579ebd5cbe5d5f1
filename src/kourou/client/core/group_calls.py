"""GroupCalls: what brokers ask of any consumer, on their own account or for `mqadmin`.

The group changed (40), go to other offsets (220), where are you (221), how are you (307). The first two
want no answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, Protocol, TypeVar

from kourou.client.core.instance import ClientInstance
from kourou.client.push.rebalance import Rebalancer
from kourou.errors import RequestError
from kourou.protocol.bodies import (
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.clients import (
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from kourou.protocol.headers.offsets import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from kourou.transport.request import Processor, Request


class Engine(Protocol):
    """What consumes for a group."""

    instance: ClientInstance
    rebalancer: Rebalancer

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> Coroutine[Any, Any, None]:
        """Go on at these offsets."""


EngineT = TypeVar("EngineT", bound=Engine)


class GroupCalls(ABC, Generic[EngineT]):
    """Answers for one consumer. `engine` is None until it is started."""

    def __init__(self, group: str, engine: Callable[[], EngineT | None]) -> None:
        self._group = group
        self._find_engine = engine

    def processors(self) -> Mapping[int, Processor]:
        """Who answers which request."""
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
        }

    @abstractmethod
    def _offsets_of(self, engine: EngineT) -> Mapping[MessageQueue, int]:
        """How far the consumer is in each of its queues."""

    @abstractmethod
    def _info_of(self, engine: EngineT, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Its settings and its state."""

    def _engine(self, group: str) -> EngineT:
        engine = self._find_engine()
        if engine is None or group != self._group:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the consumer group <{group}> does not exist in this consumer"
            )
        return engine

    def _ids_changed(self, request: Request) -> None:
        group = request.header(NotifyConsumerIdsChangedRequestHeader).consumer_group
        self._engine(group).rebalancer.wake()

    def _reset_offset(self, request: Request) -> None:
        header = request.header(ResetOffsetRequestHeader)
        offsets = decode_body(request.body, ResetOffsetBody).offset_table
        engine = self._engine(header.group)
        engine.instance.tasks.start(engine.reset_offsets(header.topic, offsets), "reset offsets")

    def _status(self, request: Request) -> None:
        header = request.header(GetConsumerStatusRequestHeader)
        table = {
            queue: queue_offset
            for queue, queue_offset in self._offsets_of(self._engine(header.group)).items()
            if not header.topic or queue.topic == header.topic
        }
        request.reply(body=encode_body(GetConsumerStatusBody(message_queue_table=table)))

    def _running_info(self, request: Request) -> None:
        header = request.header(GetConsumerRunningInfoRequestHeader)
        engine = self._engine(header.consumer_group)
        request.reply(body=encode_body(self._info_of(engine, with_stacks=header.jstack_enable)))
