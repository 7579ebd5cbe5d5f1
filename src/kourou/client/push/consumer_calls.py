"""Requests that brokers send to a consumer, on their own account or for `mqadmin`.

To any consumer (GroupCalls): the group changed (40), reset offsets (220), report offsets (221), report state
(307); the first two have no response. To a push consumer also: consume a message now (309).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kourou.client.core.instance import ClientInstance
from kourou.client.core.running_properties import running_properties, thread_stacks
from kourou.client.core.subscription import Subscriptions
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.consumer_offsets import ConsumerOffsets
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.consumer_stats import StatsTable
from kourou.client.push.handler_calls import Outcome
from kourou.client.push.rebalance import Rebalancer
from kourou.client.push.worker_pool import Worker
from kourou.errors import RequestError
from kourou.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerStatusBody,
    MessageQueue,
    PopProcessQueueInfo,
    ResetOffsetBody,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from kourou.protocol.headers.offsets import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from kourou.protocol.record import decode_record
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.client.push.push_engine import PushEngine

_log = logging.getLogger(__name__)


class Engine(Protocol):
    """The running part of a consumer."""

    instance: ClientInstance
    rebalancer: Rebalancer

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> Coroutine[Any, Any, None]:
        """Continue at these offsets."""


EngineT = TypeVar("EngineT", bound=Engine)


class GroupCalls(ABC, Generic[EngineT]):
    """Handles requests for one consumer. `engine` returns None until it is started."""

    def __init__(self, group: str, engine: Callable[[], EngineT | None]) -> None:
        self._group = group
        self._find_engine = engine

    def processors(self) -> Mapping[int, Processor]:
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
        """Options and state of the consumer."""

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


# Java's names of options, which tools may look for.
_JAVA_NAMES: Final = {
    "model": "messageModel",
    "consume_from": "consumeFromWhere",
    "strategy": "allocateMessageQueueStrategy",
    "concurrency": "consumeThreadMax",
    "batch_size": "consumeMessageBatchMaxSize",
    "pull_batch_size": "pullBatchSize",
    "pull_interval_ms": "pullInterval",
    "pop_batch_size": "popBatchNums",
    "pop_threshold_messages": "popThresholdForQueue",
    "invisible_ms": "popInvisibleTime",
    "max_reconsume_times": "maxReconsumeTimes",
    "consume_timeout_ms": "consumeTimeout",
    "suspend_ms": "suspendCurrentQueueTimeMillis",
    "pull_threshold_messages": "pullThresholdForQueue",
    "pull_threshold_bytes": "pullThresholdSizeForQueue",
    "max_span": "consumeConcurrentlyMaxSpan",
}


def running_info(
    *,
    group: str,
    options: ConsumerOptions,
    namesrv_addresses: tuple[str, ...],
    started_ms: int,
    subscriptions: Subscriptions,
    assigned: dict[MessageQueue, AssignedQueue],
    popped: dict[MessageQueue, PopProcessQueueInfo],
    offsets: ConsumerOffsets,
    stats: StatsTable,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """The state that tools show."""
    settings = {_JAVA_NAMES.get(name, name): text for name, text in options.as_texts().items()}
    settings |= {
        "messageModel": options.message_model.value,
        "consumeFromWhere": options.consume_from_where.value,
        "consumeTimestamp": str(options.consume_timestamp_ms),
        "allocateMessageQueueStrategy": options.strategy.name,
        "consumeThreadMin": str(options.concurrency),
        **running_properties(
            group=group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            namesrv_addresses=namesrv_addresses,
            started_ms=started_ms,
            is_orderly=options.orderly,
            threads=options.concurrency,
        ),
    }
    return ConsumerRunningInfo(
        properties=settings,
        subscription_set=subscriptions.data(),
        mq_table={
            queue: each.describe(commit_offset=-1 if (known := offsets.known(queue)) is None else known)
            for queue, each in sorted(assigned.items())
        },
        mq_pop_table=popped,
        status_table={topic: stats.status(topic) for topic in subscriptions.topics},
        jstack=thread_stacks() if with_stacks else None,
    )


_RESULTS: Final = {
    ConsumeResult.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeResult.LATER: CMResult.CR_LATER,
    ConsumeResult.SUSPEND: CMResult.CR_LATER,
}


class ConsumerCalls(GroupCalls["PushEngine"]):
    """Handles requests for one push consumer."""

    def processors(self) -> Mapping[int, Processor]:
        return {**super().processors(), RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly}

    def _offsets_of(self, engine: PushEngine) -> Mapping[MessageQueue, int]:
        engine.rebalancer.record_offsets()
        return engine.offsets.table()

    def _info_of(self, engine: PushEngine, *, with_stacks: bool) -> ConsumerRunningInfo:
        return engine.running_info(with_stacks=with_stacks)

    def _consume_directly(self, request: Request) -> None:
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        engine = self._engine(header.consumer_group)
        run_request(
            engine.instance.tasks, request, self._consume_now(engine, request, header.broker_name or "")
        )

    async def _consume_now(self, engine: PushEngine, request: Request, broker_name: str) -> None:
        message = decode_record(request.body)
        message.broker_name = broker_name
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        message.topic = engine.pulls.shown_topic(message)
        handler = engine.subscriptions.handler(message.topic)
        if handler is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no handler for topic {message.topic}")
        worker: Worker[Any] = Worker()
        worker.task = asyncio.current_task()
        began = time.monotonic()
        _log.info("consuming message %s on request of a tool", message.msg_id)
        outcome = await engine.calls.call(worker, handler, queue, [message])
        answer = ConsumeMessageDirectlyResult(
            order=engine.options.orderly,
            consume_result=CMResult.CR_THROW_EXCEPTION if outcome.error else _RESULTS[outcome.result],
            remark=_remark(outcome),
            spent_time_mills=int((time.monotonic() - began) * 1000),
        )
        request.reply(body=encode_body(answer))


def _remark(outcome: Outcome) -> str | None:
    return None if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"
