"""ConsumerCalls: what brokers ask of a push consumer; besides what they ask of any, to consume a message
now (309), for `mqadmin`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kourou.client.core.group_calls import GroupCalls
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.handler_calls import Outcome
from kourou.client.push.worker_pool import Worker
from kourou.errors import RequestError
from kourou.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    MessageQueue,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.clients import ConsumeMessageDirectlyResultRequestHeader
from kourou.protocol.record import decode_record
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.client.push.push_engine import PushEngine

_log = logging.getLogger(__name__)

_RESULTS: Final = {
    ConsumeResult.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeResult.LATER: CMResult.CR_LATER,
    ConsumeResult.SUSPEND: CMResult.CR_LATER,
}


class ConsumerCalls(GroupCalls["PushEngine"]):
    """Answers for one push consumer."""

    def processors(self) -> Mapping[int, Processor]:
        """Who answers which request."""
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
        _log.info("consuming message %s because a tool asks", message.msg_id)
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
